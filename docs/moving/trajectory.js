"use strict";
/** The properties of a map: the trajectory with its energies, the volume of a small cloud, the reverse trajectory. */
(function (refhmc) {
  const { determinant, dot, isFinite, largest, plus, transposedTimes } = refhmc.arrays;

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

  /**
   * The largest distance from which one step, reversed, returns to where it began, relative to the coordinates; NaN if a reverse
   * step fails. Unlike the reverse trajectory it does not amplify rounding errors. Tao's copies are dropped before the reverse step.
   */
  function oneStepBack(H, integrator, { states }, eps) {
    const distances = states.slice(1).map((end, k) => {
      const { distance } = wayBack(H, integrator, { states: [states[k], end] }, eps);
      return distance / Math.max(1, largest([...states[k].q, ...states[k].p]));
    });
    return largest(distances);
  }

  const INCREMENT = 1e-5; // of a coordinate, for differences, times its size if that is above 1

  /** The numbers of a state in one vector. Tao's copies x, y follow q, p if the state has them. */
  const flat = ({ q, p, x = [], y = [] }) => [...q, ...p, ...x, ...y];

  /**
   * The columns dz'/dz_i of one step from z to z', from central differences; null if a step of them fails, or if the differences
   * ahead and behind disagree, as at a jump.
   */
  function jacobian(H, integrator, z, end, eps) {
    const d = z.q.length, names = ["q", "p", "x", "y"].filter((name) => name in z), values = flat(z), middle = flat(end), columns = [];
    for (let i = 0; i < values.length; i++) {
      const h = INCREMENT * Math.max(1, Math.abs(values[i]));
      const [ahead, behind] = [h, -h].map((moved) => {
        const v = values.slice();
        v[i] += moved;
        const next = integrator.step(H, Object.fromEntries(names.map((name, k) => [name, v.slice(k * d, (k + 1) * d)])), eps);
        return next && flat(next);
      });
      if (ahead === null || behind === null) return null;
      const difference = plus(ahead, -1, behind), bend = plus(plus(ahead, 1, behind), -2, middle);
      if (!(largest(bend) <= 0.01 * Math.max(h, largest(difference)))) return null;
      columns.push(difference.map((x) => x / (2 * h)));
    }
    return columns;
  }

  /**
   * The volume in phase space of a small cloud, relative to the start, after each step: |det d(q', p')/d(q, p)|, 1 for a symplectic
   * map. It ends before a step that has no derivative.
   *
   * A trajectory can stretch a cloud by many powers of ten, so that its volume is lost in one difference over all steps. Therefore
   * each step J_k is differenced by itself, at the state where it is made. With orthonormal columns Q_k,
   *
   *     dz_0 / d(q, p) = Q_0 R_0,     J_k Q_k = Q_k+1 R_k+1,     volume_k+1 = |det of the rows q, p of J_k Q_k| prod_j<=k det R_j,
   *
   * where z_0 = (q, p), or (q, p, q, p) for Tao's map.
   */
  function volumes(H, integrator, { states }, eps) {
    const d = states[0].q.length, doubled = "x" in (states[1] ?? {});
    const start = doubled ? { ...states[0], x: states[0].q, y: states[0].p } : states[0];
    let Q = Array.from({ length: 2 * d }, (_, i) => flat(start).map((_, j) => (j % (2 * d) === i ? 1 : 0)));
    let before = 1;
    const found = [1];
    for (let k = 0; k + 1 < states.length; k++) {
      const { columns, volume } = orthonormal(Q), J = jacobian(H, integrator, k === 0 ? start : states[k], states[k + 1], eps);
      if (J === null) break;
      before *= volume;
      Q = columns.map((u) => transposedTimes(J, u));
      found.push(before * Math.abs(determinant(Q.map((column) => column.slice(0, 2 * d)))));
    }
    return found;
  }

  /** Gram and Schmidt: orthonormal columns of the same span, and the volume that the given ones span. */
  function orthonormal(columns) {
    const found = [];
    let volume = 1;
    for (const column of columns) {
      const rest = found.reduce((x, u) => plus(x, -dot(u, x), u), column), length = Math.sqrt(dot(rest, rest));
      volume *= length;
      found.push(rest.map((x) => x / length));
    }
    return { columns: found, volume };
  }

  const VOLUME = 1e-3, DISTANCE = 1e-4, ONE_STEP = 1e-7;

  /**
   * What a trajectory shows of its map: the `volumes` and the `volume` at the end, the reverse trajectory `back`, and verdicts that are
   * true, false or null.
   *
   * `preserved`: the volume at the end is 1 up to 1e-3; null if it is unknown. `arrives`: the reverse trajectory ends within 1e-4 of the
   * start. `returns`: it arrives, or each single step returns within 1e-7, since a long reverse trajectory amplifies rounding errors.
   * Tao's step has copies besides (q, p), so that only its reverse trajectory counts. A trajectory that is incomplete or not finite has
   * no verdict.
   */
  function properties(H, integrator, there, eps) {
    const { states, complete } = there, start = states[0], end = states.at(-1);
    const along = volumes(H, integrator, there, eps), back = wayBack(H, integrator, there, eps);
    const volume = along.length === states.length ? along.at(-1) : NaN, found = { volumes: along, volume, back };
    if (!complete || !isFinite([...end.q, ...end.p])) return { ...found, preserved: null, arrives: null, returns: null };
    const arrives = back.distance < DISTANCE * Math.max(1, largest([...start.q, ...start.p]));
    return {
      ...found,
      preserved: Number.isNaN(volume) ? null : Math.abs(volume - 1) < VOLUME,
      arrives,
      returns: arrives || (!("x" in end) && oneStepBack(H, integrator, there, eps) < ONE_STEP),
    };
  }

  refhmc.trajectory = { follow, largestEnergyError, properties, wayBack };
})((globalThis.refhmc ??= {}));
