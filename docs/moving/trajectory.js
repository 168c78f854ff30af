"use strict";
/** The properties of a map: the trajectory with its energies, the volume of a small cloud, the reverse trajectory. */
(function (refhmc) {
  const { determinant, largest } = refhmc.arrays;

  /**
   * n steps from (q, p). `states`: n + 1 of them, fewer if a step failed. `energies` H(q, p) of each; `iterations` of the
   * solver, for each step.
   */
  function follow(H, integrator, q, p, eps, n) {
    const states = [{ q, p }], energies = [H.energy(q, p)], iterations = [];
    for (let k = 0; k < n; k++) {
      const before = integrator.solver?.iterations ?? 0;
      const z = integrator.step(H, states[k], eps);
      if (z === null) break;
      states.push(z);
      energies.push(H.energy(z.q, z.p));
      iterations.push((integrator.solver?.iterations ?? 0) - before);
    }
    return { states, energies, iterations, complete: states.length === n + 1 };
  }

  /** max_i |H_i - H_0| */
  const largestEnergyError = ({ energies }) => largest(energies.map((H) => H - energies[0]));

  /**
   * The reverse trajectory: the momentum is negated and the same number of steps is made. `distance`: largest difference of a coordinate of
   * (q, -p) from the start; NaN if a step failed. `copies`: Tao's copies continue, otherwise they are reset to (q, p).
   */
  function wayBack(H, integrator, there, eps, copies = false) {
    const turned = (x) => x.map((x_i) => -x_i), end = there.states.at(-1), start = there.states[0];
    const z = { q: end.q, p: turned(end.p) };
    if (copies) Object.assign(z, { x: end.x, y: turned(end.y) });
    const states = [z];
    for (let k = 1; k < there.states.length; k++) {
      const next = integrator.step(H, states[k - 1], eps);
      if (next === null) return { states, distance: NaN };
      states.push(next);
    }
    const { q, p } = states.at(-1);
    return { states, distance: largest([...q.map((x, i) => x - start.q[i]), ...p.map((x, i) => x + start.p[i])]) };
  }

  const FRAME = 1e-4; // half the size of the small cloud

  /**
   * The volume in phase space of a small cloud, relative to the start, after each step: |det| of the differences of 2d pairs of
   * points (q, p) +- h e_i, that is of d(q', p')/d(q, p) up to O(h^2). 1 for a symplectic map.
   */
  function volumes(H, integrator, q, p, eps, n) {
    const d = q.length, z = [...q, ...p];
    const end = (i, h) => {
      const moved = z.slice();
      moved[i] += h;
      return follow(H, integrator, moved.slice(0, d), moved.slice(d), eps, n).states;
    };
    const pairs = z.map((_, i) => [end(i, FRAME), end(i, -FRAME)]);
    const reached = Math.min(...pairs.flat().map((states) => states.length));
    return Array.from({ length: reached }, (_, k) => {
      const columns = pairs.map(([a, b]) => {
        const ahead = [...a[k].q, ...a[k].p], behind = [...b[k].q, ...b[k].p];
        return ahead.map((x, i) => (x - behind[i]) / (2 * FRAME));
      });
      return Math.abs(determinant(columns));
    });
  }

  refhmc.trajectory = { FRAME, follow, largestEnergyError, volumes, wayBack };
})((globalThis.refhmc ??= {}));
