"use strict";
/** The state in the address: `#view=chain&target=funnel&eps=0.3&q=0,1`. A value that is not valid is ignored. */
(function (refhmc) {
  const { CHOICES, LIMITS, START } = refhmc.settings;
  const FARTHEST = 1e6; // of a coordinate

  /** The value of a name in the address; undefined if it is not valid. */
  function parsed(name, text) {
    if (name in CHOICES) return CHOICES[name].find((choice) => String(choice) === text);
    if (name === "q" || name === "p") {
      const x = text.split(",").map((part) => (part.trim() === "" ? NaN : Number(part)));
      return x.length === 2 && x.every((x_i) => Math.abs(x_i) <= FARTHEST) ? x : undefined;
    }
    const [least, most, whole = false] = LIMITS[name], x = text.trim() === "" ? NaN : Number(text);
    return x >= least && x <= most && (!whole || Number.isInteger(x)) ? x : undefined;
  }

  /** The part of a state that a fragment gives. */
  function read(fragment) {
    const given = new URLSearchParams(fragment.replace(/^#/, ""));
    const pairs = Object.keys(START).filter((name) => given.has(name)).map((name) => [name, parsed(name, given.get(name))]);
    return Object.fromEntries(pairs.filter(([, value]) => value !== undefined));
  }

  /** The fragment of a state, from which `read` gives the same state. */
  const write = (state) => `#${Object.keys(START).map((name) => `${name}=${[state[name]].flat().join()}`).join("&")}`;

  refhmc.address = { read, write };
})((globalThis.refhmc ??= {}));
