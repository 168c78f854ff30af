"use strict";
/** The page: one state, its controls, and its picture, which is redrawn after every change. */
(function (refhmc) {
  const { DEFAULTS, FAILURES, TARGETS, isCurved, isImplicit, made } = refhmc.settings;
  const { follow, largestEnergyError, properties, wayBack } = refhmc.trajectory;
  const { View, arrow, bands, cloud, colours, context, dot, label, line, series } = refhmc.picture;
  const { isFinite, plus } = refhmc.arrays;

  const POINTS = 200;
  const BUDGET = 8; // milliseconds
  const WAIT = 0.8; // seconds at the end of the trajectory
  const NUMBERS = ["eps", "n", "tolerance", "maxIterations", "alpha", "omega"];
  const HIERARCHICAL = {
    funnel: "M₁ = 11/18 and M₂ = exp(v), the Fisher metric. The mass of x depends on v alone, so every step is explicit. It is the step of the generalised leapfrog, without its iterations.",
    banana:
      "M₁ = 5.25 and M₂ = exp(2.72 − 0.65 θ₁), from a gamma regression of squared gradients on θ₁. M₂ follows the thickness of the arms along θ₂, so that steps fit the far arms as well as the bend. " +
      "No diagonal metric follows their direction, so the steps must stay as small as the arms are thin. Fisher follows it, but needs implicit steps.",
  };
  const $ = (id) => document.getElementById(id);
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  const state = { target: "banana", metric: "fisher", integrator: "implicit-midpoint", eps: 0.1, n: 40, ...DEFAULTS, ...TARGETS.banana.curved };
  let chosen = null, seen = null, background = null; // the map; what is known of it; the density as an image
  const moving = { playing: !still.matches, time: 0, step: 0, points: [], next: [], steps: 0, frames: 0 };

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
    const text = !there.complete
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

  /** Standard normals, the same every time (mulberry32; Box and Muller). */
  function normals(count) {
    let seed = 19;
    const uniform = () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
    return Array.from({ length: count }, () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()));
  }
  const DRAWS = normals(4 * POINTS), NORMALS = Array.from({ length: POINTS }, (_, i) => DRAWS.slice(4 * i, 4 * i + 4));

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
    const speed = Number($("speed").value), begin = performance.now();
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

  // ---------------------------------------------------------------------------------------------------------- drawing

  const scaleOfArrow = () => TARGETS[state.target].arrow[isCurved(state.metric) ? "curved" : "constant"];
  const tip = () => plus(state.q, scaleOfArrow(), state.p);

  function draw() {
    const on = context($("picture"));
    if (on === null) return;
    const { pen, width, height } = on, view = View(TARGETS[state.target].window, width, height), colour = colours(document.body);
    const key = [state.target, width, height, colour.density].join();
    if (background?.key !== key) background = { key, image: bands(TARGETS[state.target].make(), view, $("picture").width, $("picture").height, colour.density) };
    pen.drawImage(background.image, 0, 0, width, height);
    cloud(pen, view, cloudNow(), colour.cloud);
    line(pen, view, seen.there.states.map((z) => z.q), colour.path, { width: 2, dots: 2.5 });
    line(pen, view, seen.back.states.map((z) => z.q), colour.back, { width: 2, dash: [6, 5] });
    pen.fillStyle = colour.back;
    const last = view.toScreen(seen.back.states.at(-1).q);
    dot(pen, last, 5);
    const from = view.toScreen(state.q), to = view.toScreen(tip());
    arrow(pen, from, to, colour.path);
    const [first, second] = TARGETS[state.target].names;
    label(pen, first, [width - 16, height - 14], colour);
    label(pen, second, [16, 16], colour);
    for (const [id, [x, y]] of [["start", from], ["momentum", to]]) {
      $(id).style.left = `${Math.min(Math.max(x, 12), width - 12)}px`;
      $(id).style.top = `${Math.min(Math.max(y, 12), height - 12)}px`;
    }
    return colour;
  }

  function plots() {
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
    const before = moving.step;
    advance(last === null ? 0 : Math.min((now - last) / 1000, 0.1));
    last = now;
    moving.frames++;
    draw();
    if (moving.step !== before) plots();
    requestAnimationFrame(frame);
  }

  /** Advance the cloud by one step and pause. */
  function oneStep() {
    play(false);
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
  }

  function change() {
    examine();
    restart();
    tell();
    draw();
    plots();
  }

  // --------------------------------------------------------------------------------------------------------- controls

  /** Disable the options that are invalid in the present state. */
  function show() {
    const { metrics, integrators } = TARGETS[state.target];
    for (const option of $("metric").options) option.disabled = option.hidden = !metrics.includes(option.value);
    for (const option of $("integrator").options) {
      option.disabled = option.hidden = !integrators.includes(option.value) || (option.value === "block-leapfrog" && state.metric !== "hierarchical");
    }
    for (const id of ["target", "metric", "integrator", ...NUMBERS]) $(id).value = String(state[id]);
    const shown = {
      solver: isImplicit(state.integrator),
      softabs: state.metric === "softabs",
      tao: state.integrator.endsWith("tao"),
    };
    for (const label of document.querySelectorAll("[data-for]")) label.hidden = !shown[label.dataset.for];
    $("advice").textContent =
      state.integrator === "leapfrog" && isCurved(state.metric) && state.target !== "gaussian"
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
    const { metrics, integrators, start, curved } = TARGETS[state.target];
    if (!metrics.includes(state.metric)) state.metric = metrics[0];
    if (!integrators.includes(state.integrator)) state.integrator = integrators[0];
    if (changes.metric === "hierarchical" && !("integrator" in changes)) state.integrator = "block-leapfrog";
    if (state.integrator === "block-leapfrog" && state.metric !== "hierarchical") state.integrator = isCurved(state.metric) ? "implicit-midpoint" : "leapfrog";
    const moved = ("target" in changes || "metric" in changes) && !("q" in changes);
    if (moved) Object.assign(state, isCurved(state.metric) && curved ? curved : start);
    show();
    change();
    if (failure === null) for (const button of $("failures").children) button.setAttribute("aria-pressed", "false");
  }

  function failureButtons() {
    for (const failure of FAILURES) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", id: `failure-${failure.id}`, textContent: failure.title });
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => {
        set({ ...DEFAULTS, ...failure.set }, failure);
        for (const other of $("failures").children) other.setAttribute("aria-pressed", String(other === button));
        explain(failure);
      });
      $("failures").append(button);
    }
  }

  function explain(failure) {
    $("explanation").hidden = false;
    $("explanation").innerHTML = `<p>${failure.text}</p><div class="mend"><button type="button" id="mend">Remedy: ${failure.mend.label}</button><p class="paper">${failure.paper}</p></div>`;
    $("mend").addEventListener("click", () => set(failure.mend.set));
  }

  function controls() {
    for (const id of ["target", "metric", "integrator"]) $(id).addEventListener("change", () => set({ [id]: $(id).value }));
    for (const id of NUMBERS) {
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

  failureButtons();
  controls();
  handle("start", () => state.q, (position) => (state.q = position));
  handle("momentum", tip, (position) => (state.p = plus(position, -1, state.q).map((x) => x / scaleOfArrow())));
  show();
  change();
  play(!still.matches);
  if (moving.playing) requestAnimationFrame(frame);
  refhmc.page = { moving, set, state };
})((globalThis.refhmc ??= {}));
