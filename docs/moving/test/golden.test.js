"use strict";
/** The page's mathematics against refhmc's golden vectors: `node --test docs/moving/test/`. */
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { after, test } = require("node:test");
const { SOLVER_TOLERANCE, answer, number, numbers } = require("../golden.js");

const VECTORS = path.join(__dirname, "../../../refhmc/vectors");
const WANTED = 200;
const RELATIVE = 1e-12;

const rows = (name) =>
  fs.readFileSync(path.join(VECTORS, `${name}.jsonl`), "utf8").split("\n").filter(Boolean).map((line) => JSON.parse(line));
const targets = new Map(rows("targets").map((row) => [row.target, row]));
const withdrawn = new Set(rows("ERRATA").map((row) => row.id));
const records = ["models", "metrics", "forces", "steps", "discontinuous"]
  .flatMap(rows)
  .filter((row) => row.out && !withdrawn.has(row.id));

/** [largest |given - right|, largest |right|] of numbers nested alike; a number that is none is infinitely wrong. */
function compared(given, right) {
  if (!Array.isArray(right)) return [Number.isFinite(given) ? Math.abs(given - number(right)) : Infinity, Math.abs(number(right))];
  assert.strictEqual(given.length, right.length);
  const each = right.map((row, i) => compared(given[i], row));
  return [0, 1].map((k) => Math.max(0, ...each.map((pair) => pair[k])));
}

let used = 0, within = 0, worst = 0;

for (const op of new Set(records.map((row) => row.op))) {
  for (const target of ["gaussian", "banana", "funnel", "staircase"]) {
    const asked = records.filter((row) => row.op === op && row.target === target);
    const answered = asked.map((row) => [row, answer(row, targets.get(target))]).filter(([, out]) => out);
    if (answered.length === 0) continue;
    test(`${op} of the ${target}: ${answered.length} of ${asked.length} records`, () => {
      for (const [row, out] of answered) {
        let good = true;
        for (const field of Object.keys(row.out)) {
          const [error, size] = compared(out[field], row.out[field]);
          const allowed = row.tol[field] + (row.gain?.[field] ?? 0) * SOLVER_TOLERANCE;
          assert.ok(error <= allowed, `${row.id}: ${field} is off by ${error}, more than ${allowed}`);
          good &&= error <= RELATIVE * Math.max(size, 1);
          worst = Math.max(worst, error / allowed);
        }
        used++;
        within += good;
      }
    });
  }
}

test("hex floats are read exactly", () => {
  assert.deepStrictEqual(numbers(["0x1.8p+0", "-0x1p-1", "0x0p+0", "0x1.fffffffffffffp+1023", "0x1p-1074"]), [
    1.5, -0.5, 0, Number.MAX_VALUE, Number.MIN_VALUE,
  ]);
});

after(() => {
  console.log(`${used} golden vectors within their tolerances, the worst at ${worst.toFixed(3)} of it; ${within} within ${RELATIVE} of the field's size`);
  assert.ok(within >= WANTED);
});
