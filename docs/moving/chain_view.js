"use strict";
/** The pictures of a chain: one transition in stages, each with its sentence, ellipses of the metric, and histograms next to the exact margins. */
(function (refhmc) {
  const { cholesky } = refhmc.arrays;
  const { arrow, cloud, context, dot, line } = refhmc.picture;

  const percent = (x) => `${(100 * x).toFixed(x > 0 && x < 0.01 ? 2 : 0)} %`;
  const count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

  function decision({ accepted, probability, proposal }) {
    if (proposal === null) return "A step of the trajectory has no solution, so the proposal is rejected and the state counts once more.";
    const outcome = accepted ? "is accepted, and the chain moves there" : "is rejected, and the state counts once more";
    return `The proposal, with an acceptance probability of ${percent(probability)}, ${outcome}.`;
  }

  function doubling(half, k) {
    const n = half.states.length, coin = `Doubling ${k + 1}: the coin gives ${half.forward ? "forward" : "backward"}, for ${count(n, "new state")}`;
    const between = half.turned && `the interval from state ${half.turned[0]} to state ${half.turned[1]}`;
    const why = { diverged: "the energies differ by more than 1,000", "no energy": "a state has no energy", turned: `${between} turns back` };
    if (!half.kept) return `${coin}, and the trajectory ends without ${n === 1 ? "it" : "them"}, because ${why[half.ended]}.`;
    const swap = `whose candidate ${half.chosen ? "replaces" : "does not replace"} the present one (probability ${percent(half.probability)})`;
    return `${coin}, ${swap}${half.ended ? `, and the trajectory ends, because ${why[half.ended]}` : ""}.`;
  }

  /** One sentence for each stage of a transition, in order. */
  function stages(t) {
    if (t.kernel === "rwm") return ["The random walk proposes a point around the state, without regard to the density.", decision(t)];
    const first = t.start.p === null
      ? "The metric does not exist at this position."
      : "A momentum is drawn; the ellipse is the metric, as velocities of one standard deviation.";
    if (t.kernel === "hmc") return [first, `The integrator makes ${count(t.states.length - 1, "step")} to the proposal.`, decision(t)];
    const { time } = t.chosen;
    const last = time === 0
      ? "The draw is the start itself, and the state counts once more."
      : `The draw is the state ${count(Math.abs(time), "step")} ${time > 0 ? "after" : "before"} the start.`;
    return [first, ...t.doublings.map(doubling), last];
  }

  /** The points q + r G(q)^-1/2 u of the unit circle u: for momenta of one standard deviation, velocities of this shape. */
  function ellipse(metric, q, r) {
    const C = cholesky(metric.mass());
    return Array.from({ length: 49 }, (_, k) => {
      const a = (2 * Math.PI * k) / 48, y = Math.sin(a) / C[1][1], x = (Math.cos(a) - C[1][0] * y) / C[0][0]; // C' (x, y) = u
      return [q[0] + r * x, q[1] + r * y];
    });
  }

  /** Ellipses of the metric on a grid of positions, if it changes from place to place. */
  function ellipses(pen, view, H, [[left, right], [bottom, top]], colour) {
    if (!H.curved) return;
    for (let i = 0; i < 7; i++) {
      for (let j = 0; j < 6; j++) {
        const q = [left + ((i + 0.5) / 7) * (right - left), bottom + ((j + 0.5) / 6) * (top - bottom)], metric = H.at(q);
        if (metric !== null) line(pen, view, ellipse(metric, q, 0.3), colour.faint, { width: 1 });
      }
    }
  }

  /** The transition `t` up to its `stage`, of which `part` is seen. */
  function transition(pen, view, t, stage, part, H, scale, colour) {
    const last = stage === stages(t).length - 1, at = view.toScreen(t.start.q);
    const metric = t.kernel !== "rwm" && H.at ? H.at(t.start.q) : null;
    if (metric) line(pen, view, ellipse(metric, t.start.q, scale), colour.accent, { width: 1.5 });
    if (t.kernel === "rwm") line(pen, view, [t.start.q, t.proposal.q], colour.path, { width: 1.5, dash: [4, 4] });
    if (stage === 0 && t.start.p) arrow(pen, at, view.toScreen(t.start.q.map((x, i) => x + scale * t.start.p[i])), colour.path);
    if (t.kernel === "hmc" && stage >= 1) {
      const seen = stage > 1 ? t.states.length : Math.max(1, Math.ceil(part * t.states.length));
      line(pen, view, t.states.slice(0, seen).map((z) => z.q), colour.path, { width: 2, dots: 2 });
    }
    if (t.kernel === "nuts" && stage >= 1) tree(pen, view, t, Math.min(stage, t.doublings.length), part, last, colour);
    const end = t.kernel === "nuts" ? t.chosen : t.proposal;
    if (end && (last || t.kernel === "rwm")) {
      pen.fillStyle = !last ? colour.path : t.accepted || t.kernel === "nuts" ? colour.good : colour.bad;
      dot(pen, view.toScreen(end.q), 6);
      if (last && !t.accepted && t.kernel !== "nuts") cross(pen, view.toScreen(end.q), colour.bad);
    }
    pen.fillStyle = colour.ink;
    dot(pen, at, 5);
  }

  function cross(pen, [x, y], colour) {
    pen.strokeStyle = colour;
    pen.lineWidth = 2.5;
    pen.beginPath();
    for (const sign of [1, -1]) {
      pen.moveTo(x - 11, y - 11 * sign);
      pen.lineTo(x + 11, y + 11 * sign);
    }
    pen.stroke();
  }

  /** The first doublings of a tree, the newest in another colour, and one that is discarded dashed. */
  function tree(pen, view, { start, doublings }, shown, part, complete, colour) {
    let first = start, end = start;
    doublings.slice(0, shown).forEach((half, k) => {
      const newest = !complete && k === shown - 1;
      const states = newest ? half.states.slice(0, Math.max(1, Math.ceil(part * half.states.length))) : half.states;
      const ink = !half.kept && (!newest || part === 1) ? colour.bad : newest ? colour.back : colour.path;
      line(pen, view, [half.forward ? end : first, ...states].map((z) => z.q), ink, { width: 2, dash: half.kept ? [] : [5, 5], dots: 2.5 });
      if (newest && part === 1 && half.turned) {
        pen.fillStyle = colour.bad;
        const known = new Map([start, ...doublings.slice(0, shown).flatMap((d) => d.states)].map((z) => [z.time, z]));
        for (const time of half.turned) dot(pen, view.toScreen(known.get(time).q), 5);
      }
      if (half.forward) end = half.states.at(-1);
      else first = half.states.at(-1);
    });
  }

  const draws = (pen, view, positions, colour) => cloud(pen, view, positions, colour.cloud);

  /** A histogram of the draws with the exact margin as a line. `counts` are of equal bins of the window. */
  function histogram(canvas, { counts, n }, margin, [least, most], name, colour) {
    const on = context(canvas);
    if (on === null) return;
    const { pen, width, height } = on, base = height - 18, bin = (most - least) / counts.length;
    const heights = counts.map((c) => (n > 0 ? c / n / bin : 0)), highest = 1.6 * Math.max(...margin.density.filter(Number.isFinite));
    const x_at = (x) => ((x - least) / (most - least)) * width, y_at = (y) => base - (Math.min(y, highest) / highest) * (base - 4);
    pen.fillStyle = colour.cloud;
    pen.globalAlpha = 0.55;
    heights.forEach((h, k) => pen.fillRect(x_at(least + k * bin) + 0.5, y_at(h), width / counts.length - 1, base - y_at(h)));
    pen.globalAlpha = 1;
    pen.strokeStyle = colour.path;
    pen.lineWidth = 2;
    pen.beginPath();
    margin.x.forEach((x, k) => pen.lineTo(x_at(x), y_at(margin.density[k])));
    pen.stroke();
    pen.strokeStyle = colour.faint;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(0, base);
    pen.lineTo(width, base);
    pen.stroke();
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = colour.ink;
    pen.textBaseline = "middle";
    for (const [text, x, align] of [[`${least}`, 2, "left"], [name, width / 2, "center"], [`${most}`, width - 2, "right"]]) {
      pen.textAlign = align;
      pen.fillText(text, x, height - 8);
    }
  }

  refhmc.chainView = { draws, ellipses, histogram, stages, transition };
})((globalThis.refhmc ??= {}));
