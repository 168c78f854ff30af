"use strict";
/** The page: one state, its controls, and its picture, which is redrawn after every change. */
(function (refhmc) {
  const { CHAINS, DEFAULTS, FAILURES, LIMITS, START, TARGETS, isCurved, isImplicit, made } = refhmc.settings;
  const { Random, funnelMargins, margins, transition } = refhmc.chain;
  const { address, chainView } = refhmc;
  const { follow, largestEnergyError, properties, wayBack } = refhmc.trajectory;
  const { View, arrow, bands, cloud, colours, context, dot, label, layer, line, series } = refhmc.picture;
  const { isFinite, plus } = refhmc.arrays;

  const POINTS = 200;
  const BUDGET = 8; // milliseconds
  const WAIT = 0.8; // seconds at the end of the trajectory
  const BINS = 40, SCATTER = 2000; // of a histogram; most draws in the picture
  const CHOICES = ["target", "kernel", "metric", "integrator", "speed", "pace"], NUMBERS = Object.keys(LIMITS);
  const EXAMPLES = [...FAILURES, ...CHAINS];
  const HIERARCHICAL = {
    funnel: "M₁ = 11/18 and M₂ = exp(v), the Fisher metric. The mass of x depends on v alone, so every step is explicit. It is the step of the generalised leapfrog, without its iterations.",
    banana:
      "M₁ = 5.25 and M₂ = exp(2.72 − 0.65 θ₁), from a gamma regression of squared gradients on θ₁. M₂ follows the thickness of the arms along θ₂, so that steps fit the far arms as well as the bend. " +
      "No diagonal metric follows their direction, so the steps must stay as small as the arms are thin. Fisher follows it, but needs implicit steps.",
  };
  const $ = (id) => document.getElementById(id);
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  const state = { ...START };
  let chosen = null, seen = null; // the map; what is known of it
  const kept = { density: null, trajectory: null }; // images of what does not change from frame to frame
  const moving = { playing: !still.matches, time: 0, step: 0, points: [], next: [], steps: 0, frames: 0 };
  const run = { draws: [], n: 0, stage: 0, part: 0, shown: null, next: null }; // the chain; `shown`, the transition in the picture
  const exact = new Map(); // the margins of each target
  const inChain = () => state.view === "chain";

  // ------------------------------------------------------------------------------------------------------ what is seen

  /** Format with four digits; values of the size of rounding are not distinguished. */
  function said(x) {
    if (Number.isNaN(x)) return "not defined";
    if (!Number.isFinite(x)) return x < 0 ? "−∞" : "∞";
    if (Math.abs(x) < 1e-12) return "below 1e-12";
    const text = Math.abs(x) >= 1e5 || Math.abs(x) < 1e-3 ? x.toExponential(3) : x.toPrecision(4);
    return text.replace("-", x < 0 ? "−" : "-").replace("e+", "e");
  }

  function examine() {
    chosen = made(state);
    const { H, integrator } = chosen, there = follow(H, integrator, state.q, state.p, state.eps, state.n);
    seen = {
      there,
      errors: there.energies.map((energy) => energy - there.energies[0]),
      ...properties(H, integrator, there, state.eps),
      copies: state.integrator === "explicit-tao" ? wayBack(H, integrator, there, state.eps, true).distance : null,
    };
  }

  function figure(id, text, verdict = "") {
    $(id).textContent = text;
    $(id).dataset.verdict = verdict;
  }

  /** "good" or "bad"; nothing without a verdict. */
  const verdict = (good) => (good === null ? "" : good ? "good" : "bad");

  function tell() {
    const { there, errors, volume, back, copies, preserved, arrives, returns } = seen, end = errors.at(-1), made = there.states.length - 1;
    const acceptance = there.complete && !Number.isNaN(end) ? Math.min(1, Math.exp(-end)) : 0;
    figure("energy-error", said(end), verdict(there.complete ? Math.abs(end) < 1 : null));
    figure("largest-energy-error", said(largestEnergyError(there)));
    figure("acceptance", acceptance.toPrecision(3));
    figure("volume", said(volume), verdict(preserved));
    figure("way-back", said(back.distance), verdict(returns));
    figure("copies", copies === null ? "" : said(copies));
    const most = Math.max(0, ...there.iterations), mean = there.iterations.reduce((a, b) => a + b, 0) / Math.max(1, made);
    figure("iterations", `${mean.toFixed(1)}, at most ${most}`);
    $("copies-row").hidden = copies === null;
    $("iterations-row").hidden = !isImplicit(state.integrator);
    const ofVolume = preserved === null ? "the volume is not known" : preserved ? "the volume is preserved" : `the volume is not preserved (${said(volume)} of the start's)`;
    const ofReturn = !returns
      ? Number.isNaN(back.distance) ? "a step of the reverse trajectory has no solution" : `the reverse trajectory ends ${said(back.distance)} from the start`
      : arrives ? "the reverse trajectory returns to the start" : `each step is reversible, and only rounding errors make the reverse trajectory end ${said(back.distance)} from the start`;
    const text = inChain() ? sentenceOfChain() : !there.complete
      ? `Step ${made + 1} of ${state.n} has no solution: the solver did not converge, or the metric does not exist. The proposal is rejected, and nothing is known of volume and reversibility.`
      : returns === null
        ? `After ${made} steps the state is too large for a number. The proposal is rejected, and nothing is known of volume and reversibility.`
        : `After ${made} steps the energy error is ${said(end)}; ${ofVolume}; ${ofReturn}.`;
    $("start").setAttribute("aria-label", `Start: ${named(state.q)}`);
    $("momentum").setAttribute("aria-label", `Momentum: p₁ = ${state.p[0].toFixed(2)}, p₂ = ${state.p[1].toFixed(2)}`);
    clearTimeout(tell.later);
    tell.later = setTimeout(() => ($("summary").textContent = text), 150); // one sentence for a whole drag
  }

  const named = (q) => TARGETS[state.target].names.map((name, i) => `${name} = ${q[i].toFixed(2)}`).join(", ");

  // -------------------------------------------------------------------------------------------------------- the cloud

  const fixed = Random(19); // the same cloud every time
  const NORMALS = Array.from({ length: POINTS }, () => [0, 0, 0, 0].map(fixed.normal));

  const stepped = (z) => z && chosen.integrator.step(chosen.H, z, state.eps);

  function restart() {
    const { q, p } = TARGETS[state.target].cloud;
    Object.assign(moving, { time: 0, step: 0 });
    moving.points = NORMALS.map((z) => ({ q: plus(state.q, q, z.slice(0, 2)), p: plus(state.p, p, z.slice(2)) }));
    moving.next = moving.points.map(stepped);
  }

  /**
   * Advance the cloud by `seconds`: whole steps of the map, straight lines between them. If the steps of a frame take longer than
   * BUDGET, the rest is skipped, so that the cloud is late but moves.
   */
  function advance(seconds) {
    const { speed } = state, begin = performance.now();
    moving.time += seconds * speed;
    if (moving.time > state.n + WAIT * speed) restart();
    while (moving.step < Math.min(Math.floor(moving.time), state.n)) {
      moving.points = moving.next;
      moving.next = moving.points.map(stepped);
      moving.step++;
      moving.steps++;
      if (performance.now() - begin > BUDGET) moving.time = Math.min(moving.time, moving.step + 0.999);
    }
  }

  function cloudNow() {
    const part = moving.step < state.n ? moving.time - moving.step : 0;
    return moving.points.flatMap((z, i) => {
      const next = moving.next[i];
      if (!z || !isFinite(z.q)) return [];
      return [next && isFinite(next.q) ? plus(z.q, part, plus(next.q, -1, z.q)) : z.q];
    });
  }

  // -------------------------------------------------------------------------------------------------------- the chain

  function exactMargins() {
    const { box, make, window } = TARGETS[state.target];
    if (!exact.has(state.target)) exact.set(state.target, box ? margins(make(), box) : funnelMargins(window));
    return exact.get(state.target);
  }

  function restartChain() {
    Object.assign(run, {
      random: Random(state.seed), q: state.q, draws: [], n: 0, accepted: 0, steps: 0, sums: [0, 0], stage: 0, part: 0,
      counts: [0, 1].map(() => new Array(BINS).fill(0)),
    });
    propose();
  }

  /** The next transition, whose stages are shown before its draw counts. */
  function propose() {
    run.shown = transition(chosen, state, run.q, run.random);
    run.stages = chainView.stages(run.shown);
    Object.assign(run, { stage: 0, part: 0 });
  }

  /** Count the draw of the present transition. */
  function record() {
    const { q, steps, probability } = run.shown;
    run.q = q;
    run.draws.push(q);
    if (run.draws.length > SCATTER) run.draws.shift();
    run.n++;
    run.accepted += probability;
    run.steps += steps;
    q.forEach((x, i) => {
      const [least, most] = TARGETS[state.target].window[i], bin = Math.floor(((x - least) / (most - least)) * BINS);
      if (bin >= 0 && bin < BINS) run.counts[i][bin]++;
      run.sums[i] += x;
    });
  }

  const inStages = () => state.pace < 1;

  /** Advance the chain by `seconds`. All stages of a transition take the same time. What does not fit into BUDGET is skipped. */
  function advanceChain(seconds) {
    const begin = performance.now();
    let left = seconds * state.pace; // in stages or in draws
    while (left > 0) {
      const size = inStages() ? 1 : 1 / run.stages.length, needed = (1 - run.part) * size;
      if (left < needed) {
        run.part += left / size;
        return;
      }
      left -= needed;
      nextStage();
      if (performance.now() - begin > BUDGET) return;
    }
  }

  function nextStage() {
    if (run.stage + 1 < run.stages.length) Object.assign(run, { stage: run.stage + 1, part: 0 });
    else propose();
    if (run.stage === run.stages.length - 1) record();
  }

  function drawChain(pen, view, colour) {
    const setting = TARGETS[state.target];
    if (state.kernel !== "rwm") chainView.ellipses(pen, view, chosen.H, setting.window, colour);
    chainView.draws(pen, view, run.draws, colour);
    const part = !inStages() || !moving.playing ? 1 : Math.min(1, 1.5 * run.part);
    chainView.transition(pen, view, run.shown, run.stage, part, chosen.H, scaleOfArrow(), colour);
  }

  function tellChain() {
    const { n, stage, stages, sums } = run, { names, window } = TARGETS[state.target], colour = colours(document.body);
    figure("draws", `${n}`);
    figure("rate", n > 0 ? (run.accepted / n).toPrecision(2) : "");
    figure("cost", n > 0 ? (run.steps / n).toPrecision(3) : "");
    exactMargins().forEach((margin, i) => {
      const mean = n > 0 ? (sums[i] / n).toFixed(2) : "none yet", right = margin.mean.toFixed(2).replace("-0.00", "0.00");
      $(`mean-${i + 1}-title`).textContent = `Mean of ${names[i]}, exact ${right}`;
      figure(`mean-${i + 1}`, mean);
      $(`margin-${i + 1}`).setAttribute("aria-label", `Histogram of ${n} ${n === 1 ? "draw" : "draws"} of ${names[i]}, mean ${mean}; exact margin, mean ${right}`);
      $(`margin-${i + 1}-title`).textContent = `${names[i]}: draws and exact margin`;
      chainView.histogram($(`margin-${i + 1}`), { counts: run.counts[i], n }, margin, window[i], names[i], colour);
    });
    const live = moving.playing ? "off" : "polite"; // a sentence of a moving chain would be read without end
    if ($("seen").getAttribute("aria-live") !== live) $("seen").setAttribute("aria-live", live);
    const text = moving.playing && !inStages() ? "Slow the chain down, or make one step, to see the stages of a transition." : stages[stage];
    if ($("seen").textContent !== text) $("seen").textContent = text;
  }

  /** What the trajectory from the start shows of the stationary distribution. That a map is right in one place proves nothing elsewhere. */
  function sentenceOfChain() {
    if (state.kernel === "rwm") return "The proposal is symmetric, and the density decides whether it is accepted. The stationary distribution is the target.";
    if (state.kernel === "nuts") return "The leapfrog on a constant metric preserves volume and is reversible, and the tree could have grown from any of its states. The stationary distribution is the target.";
    const { preserved, returns } = seen;
    if (preserved === false || returns === false) {
      const lost = [preserved === false && "does not preserve volume", returns === false && "is not reversible"].filter(Boolean).join(" and ");
      return `Along the trajectory from the start, the map ${lost}, so the chain has another stationary distribution than the target. More draws do not remove the error.`;
    }
    if (preserved && returns) return "Along the trajectory from the start, the map preserves volume and is reversible. If it does so everywhere, the stationary distribution is the target.";
    return "The trajectory from the start gives no verdict on the map. A step without a solution is a rejection.";
  }

  // ---------------------------------------------------------------------------------------------------------- drawing

  const scaleOfArrow = () => TARGETS[state.target].arrow[isCurved(state.metric) ? "curved" : "constant"];
  const tip = () => plus(state.q, scaleOfArrow(), state.p);

  function draw() {
    const on = context($("picture"));
    if (on === null) return;
    const { pen, width, height } = on, view = View(TARGETS[state.target].window, width, height), colour = colours(document.body);
    const size = [$("picture").width, $("picture").height];
    pen.drawImage(image("density", [state.target, ...size, colour.density], () => bands(TARGETS[state.target].make(), view, ...size, colour.density)), 0, 0, width, height);
    if (inChain()) drawChain(pen, view, colour);
    else drawTrajectory(pen, view, colour);
    const from = view.toScreen(state.q), to = view.toScreen(tip());
    if (!inChain()) arrow(pen, from, to, colour.path);
    const [first, second] = TARGETS[state.target].names;
    label(pen, first, [width - 16, height - 14], colour);
    label(pen, second, [16, 16], colour);
    for (const [id, [x, y]] of [["start", from], ["momentum", to]]) {
      $(id).style.left = `${Math.min(Math.max(x, 12), width - 12)}px`;
      $(id).style.top = `${Math.min(Math.max(y, 12), height - 12)}px`;
    }
  }

  /** The image of this name, which is drawn again if an entry of the key has changed. */
  function image(name, key, drawn) {
    if (!kept[name] || kept[name].key.some((entry, i) => entry !== key[i])) kept[name] = { key, image: drawn() };
    return kept[name].image;
  }

  function drawTrajectory(pen, view, colour) {
    cloud(pen, view, cloudNow(), colour.cloud);
    const size = [$("picture").width, $("picture").height];
    const drawn = () => layer(size, view, (pen) => {
      line(pen, view, seen.there.states.map((z) => z.q), colour.path, { width: 2, dots: 2.5 });
      line(pen, view, seen.back.states.map((z) => z.q), colour.back, { width: 2, dash: [6, 5] });
      dot(pen, view.toScreen(seen.back.states.at(-1).q), 5);
    });
    pen.drawImage(image("trajectory", [seen, ...size, colour.path, colour.back], drawn), 0, 0, view.width, view.height);
  }

  function plots() {
    if (inChain()) return tellChain();
    const colour = colours(document.body), { ink, faint } = colour, mark = Math.min(moving.step, seen.there.states.length - 1);
    series($("energy-plot"), seen.errors, { colour: colour.path, ink, faint, reference: 0, mark, steps: state.n });
    series($("volume-plot"), seen.volumes, { colour: colour.cloud, ink, faint, reference: 1, log: true, mark: Math.min(mark, seen.volumes.length - 1), steps: state.n });
  }

  let last = null;
  function frame(now) {
    if (!moving.playing) {
      last = null;
      return;
    }
    const before = moving.step, seconds = last === null ? 0 : Math.min((now - last) / 1000, 0.1);
    if (inChain()) advanceChain(seconds);
    else advance(seconds);
    last = now;
    moving.frames++;
    draw();
    if (inChain() || moving.step !== before) plots();
    requestAnimationFrame(frame);
  }

  /** Advance the cloud by one step, or the chain by one stage, and pause. */
  function oneStep() {
    play(false);
    if (inChain()) {
      nextStage();
      draw();
      return plots();
    }
    moving.time = moving.step < state.n ? moving.step + 1 : Infinity;
    advance(0);
    draw();
    plots();
  }

  function play(playing) {
    const begins = playing && !moving.playing;
    moving.playing = playing;
    $("play").textContent = playing ? "Pause" : "Play";
    if (begins) requestAnimationFrame(frame);
    else if (inChain()) plots();
  }

  function change() {
    examine();
    restart();
    restartChain();
    tell();
    draw();
    plots();
    remember();
  }

  // --------------------------------------------------------------------------------------------------------- controls

  /** Disable the options that are invalid in the present state. */
  function show() {
    const { metrics, integrators } = TARGETS[state.target];
    for (const option of $("metric").options) option.disabled = option.hidden = !metrics.includes(option.value);
    for (const option of $("integrator").options) {
      option.disabled = option.hidden = !integrators.includes(option.value) || (option.value === "block-leapfrog" && state.metric !== "hierarchical");
    }
    for (const id of [...CHOICES, ...NUMBERS]) $(id).value = String(state[id]);
    const map = !inChain() || state.kernel !== "rwm";
    const shown = {
      map,
      walk: !map,
      nuts: inChain() && state.kernel === "nuts",
      steps: !inChain() || state.kernel === "hmc",
      solver: map && isImplicit(state.integrator),
      softabs: map && state.metric === "softabs",
      tao: map && state.integrator.endsWith("tao"),
    };
    for (const element of document.querySelectorAll("[data-for]")) element.hidden = !shown[element.dataset.for];
    for (const element of document.querySelectorAll("[data-view]")) element.hidden = element.dataset.view !== state.view;
    for (const view of ["trajectory", "chain"]) $(`view-${view}`).setAttribute("aria-pressed", String(view === state.view));
    $("momentum").hidden = inChain();
    $("advice").textContent = !map
      ? ""
      : state.integrator === "leapfrog" && isCurved(state.metric) && state.target !== "gaussian"
        ? "refhmc rejects the leapfrog on a position-dependent metric. See which properties are lost."
        : state.integrator === "discontinuous"
          ? "The momentum of n has a Laplace distribution, |p₂| instead of ½p₂²."
          : state.target === "gaussian" && isCurved(state.metric)
            ? "The curvature of a Gaussian is the same everywhere: this metric is constant."
            : state.metric === "hierarchical"
              ? HIERARCHICAL[state.target]
              : "";
  }

  function set(changes, failure = null) {
    Object.assign(state, changes);
    const { metrics, integrators } = TARGETS[state.target];
    if (state.view === "chain" && state.kernel === "nuts") {
      const fits = !isCurved(state.metric) && state.integrator === "leapfrog";
      if (!fits && ("metric" in changes || "integrator" in changes) && !("kernel" in changes)) state.kernel = "hmc";
      else if (!fits) Object.assign(state, { metric: isCurved(state.metric) ? "identity" : state.metric, integrator: "leapfrog" });
    }
    if (!metrics.includes(state.metric)) state.metric = metrics[0];
    if (!integrators.includes(state.integrator)) state.integrator = integrators[0];
    if (changes.metric === "hierarchical" && !("integrator" in changes)) state.integrator = "block-leapfrog";
    if (state.integrator === "block-leapfrog" && state.metric !== "hierarchical") state.integrator = isCurved(state.metric) ? "implicit-midpoint" : "leapfrog";
    if (("target" in changes || "metric" in changes) && !("q" in changes)) Object.assign(state, startOf(state));
    show();
    change();
    if (failure === null) for (const button of document.querySelectorAll(".failures button")) button.setAttribute("aria-pressed", "false");
  }

  function exampleButtons() {
    for (const example of EXAMPLES) {
      const button = document.createElement("button"), chain = CHAINS.includes(example);
      Object.assign(button, { type: "button", id: `${chain ? "chain" : "failure"}-${example.id}`, textContent: example.title });
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        set({ ...DEFAULTS, ...(chain ? { view: "chain" } : {}), ...example.set }, example);
        for (const other of document.querySelectorAll(".failures button")) other.setAttribute("aria-pressed", String(other === button));
        explain(example);
      });
      $(chain ? "chains" : "failures").append(button);
    }
  }

  function explain({ text, mend, paper, chapter }) {
    $("explanation").hidden = false;
    const remedy = mend ? `<button type="button" id="mend">Remedy: ${mend.label}</button>` : "";
    const source = [paper, `<a href="${chapterAt(chapter)}">Chapter</a>`].filter(Boolean).join(". ");
    $("explanation").innerHTML = `<p>${text}</p><div class="mend">${remedy}<p class="paper">${source}</p></div>`;
    if (mend) $("mend").addEventListener("click", () => set(mend.set));
  }

  // In a checkout the chapters are not built, and the links lead to their sources.
  const fromCheckout = location.protocol === "file:" && location.pathname.endsWith("/docs/moving/index.html");
  const chapterAt = (name) => `../book/${name}.${fromCheckout ? "md" : "html"}`;

  // ------------------------------------------------------------------------------------------------------ the address

  /** Write the state into the address, once for a whole drag, because browsers limit how often it may change. */
  function remember() {
    clearTimeout(remember.later);
    remember.later = setTimeout(() => {
      const fragment = address.write(state);
      history.replaceState(null, "", fragment === address.write(START) ? location.pathname : fragment);
    }, 300);
  }

  /** Take the state of the address, and the defaults for everything that it does not give. */
  function recall() {
    const given = address.read(location.hash), view = given.view ?? START.view;
    $("explanation").hidden = true;
    set({ ...START, ...startOf({ ...START, ...given }), ...given, view });
  }

  const startOf = ({ target, metric }) => {
    const { start, curved } = TARGETS[target];
    return isCurved(metric) && curved ? curved : start;
  };

  function controls() {
    for (const id of ["target", "kernel", "metric", "integrator"]) $(id).addEventListener("change", () => set({ [id]: $(id).value }));
    for (const id of ["speed", "pace"]) {
      $(id).addEventListener("change", () => {
        state[id] = Number($(id).value);
        remember();
      });
    }
    for (const view of ["trajectory", "chain"]) $(`view-${view}`).addEventListener("click", () => set({ view }));
    $("reset").addEventListener("click", () => {
      $("explanation").hidden = true;
      set(START);
    });
    addEventListener("hashchange", recall);
    for (const link of document.querySelectorAll("nav a")) link.href = chapterAt(link.getAttribute("href").match(/(\w+)\.html/)[1]);
    for (const id of NUMBERS) {
      [$(id).min, $(id).max] = LIMITS[id];
      $(id).addEventListener("input", () => {
        const valid = $(id).value !== "" && $(id).checkValidity();
        $(id).setAttribute("aria-invalid", String(!valid));
        if (!valid) return;
        state[id] = $(id).valueAsNumber;
        change();
      });
      $(id).addEventListener("change", () => !$(id).checkValidity() && show());
    }
    $("controls").addEventListener("submit", (event) => event.preventDefault());
    $("play").addEventListener("click", () => play(!moving.playing));
    $("one-step").addEventListener("click", oneStep);
    still.addEventListener("change", () => play(!still.matches));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (draw(), plots()));
    new ResizeObserver(() => (draw(), plots())).observe($("plane"));
  }

  /** A handle follows the pointer and the arrow keys; `place` takes a position in the plane, `at` returns the present one. */
  function handle(id, at, place) {
    const button = $(id), view = () => {
      const { width, height } = $("picture").getBoundingClientRect();
      return View(TARGETS[state.target].window, width, height);
    };
    let changing = null;
    const placed = (position) => {
      place(position);
      changing ??= requestAnimationFrame(() => {
        changing = null;
        change();
      });
    };
    button.addEventListener("pointerdown", (event) => {
      button.setPointerCapture(event.pointerId);
      button.focus();
      event.preventDefault();
    });
    button.addEventListener("pointermove", (event) => {
      if (!button.hasPointerCapture(event.pointerId)) return;
      const { left, top } = $("picture").getBoundingClientRect();
      placed(view().toPlane([event.clientX - left, event.clientY - top]));
    });
    button.addEventListener("keydown", (event) => {
      const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowUp: [0, 1] }[event.key];
      if (way === undefined) return;
      event.preventDefault();
      const share = event.shiftKey ? 0.05 : 0.01;
      placed(TARGETS[state.target].window.map(([least, most], i) => at()[i] + way[i] * share * (most - least)));
    });
  }

  exampleButtons();
  controls();
  handle("start", () => state.q, (position) => (state.q = position));
  handle("momentum", tip, (position) => (state.p = plus(position, -1, state.q).map((x) => x / scaleOfArrow())));
  recall();
  play(!still.matches);
  if (moving.playing) requestAnimationFrame(frame);
  refhmc.page = { moving, run, set, state };
})((globalThis.refhmc ??= {}));
