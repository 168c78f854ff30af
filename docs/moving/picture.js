"use strict";
/** Drawing on canvases. A view maps the plane of positions to a canvas; colours are the style sheet's. */
(function (refhmc) {
  /** Lengths are in CSS pixels. */
  function View([[left, right], [bottom, top]], width, height) {
    return {
      width,
      height,
      toScreen: ([q1, q2]) => [((q1 - left) / (right - left)) * width, ((top - q2) / (top - bottom)) * height],
      toPlane: ([x, y]) => [left + (x / width) * (right - left), top - (y / height) * (top - bottom)],
    };
  }

  /** The canvas in its size on the page, sharp on any screen; null if it is hidden. */
  function context(canvas) {
    const { width, height } = canvas.getBoundingClientRect(), ratio = globalThis.devicePixelRatio || 1;
    if (width === 0) return null;
    const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    return { pen, width, height };
  }

  function colours(element) {
    const style = getComputedStyle(element), of = (name) => style.getPropertyValue(`--${name}`).trim();
    return Object.fromEntries(["ink", "paper", "faint", "density", "path", "back", "cloud", "accent", "good", "bad"].map((name) => [name, of(name)]));
  }

  const DROPS = [0.25, 1, 2.25, 4, 6.25, 9]; // of L below its largest value: r^2/2 of a Gaussian for r = .7, 1.4, ...

  /**
   * The density in bands, each a step of DROPS below the last, as an image of w x h pixels. With u = max L - L, a band covers a pixel by
   * as much as its edge is away in pixels, (drop - u) / |du|, and the edge is drawn where that is less than one.
   */
  function bands(target, view, w, h, colour) {
    const u = new Float64Array(w * h);
    let most = -Infinity;
    for (let y = 0; y < h; y++) {
      for (let x = 0; x < w; x++) {
        const L = target.logDensity(view.toPlane([((x + 0.5) / w) * view.width, ((y + 0.5) / h) * view.height]));
        most = Math.max(most, L);
        u[y * w + x] = -L;
      }
    }
    const image = document.createElement("canvas");
    [image.width, image.height] = [w, h];
    const pen = image.getContext("2d");
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b] = pen.getImageData(0, 0, 1, 1).data, data = pen.createImageData(w, h);
    for (let i = 0; i < w * h; i++) {
      const drop_here = u[i] + most, change = Math.hypot(u[i] - u[i % w > 0 ? i - 1 : i], u[i] - u[i >= w ? i - w : i]) || 1e-9;
      let alpha = 0;
      for (const drop of DROPS) {
        const pixels = change < Infinity ? (drop - drop_here) / change : drop > drop_here ? 1 : -1;
        alpha += 26 * Math.min(Math.max(pixels + 0.5, 0), 1) + 50 * Math.max(1 - Math.abs(pixels), 0);
      }
      const at = 4 * i;
      [data.data[at], data.data[at + 1], data.data[at + 2], data.data[at + 3]] = [r, g, b, alpha];
    }
    pen.putImageData(data, 0, 0);
    return image;
  }

  /** A line through the positions, which ends when it leaves the picture. */
  function line(pen, view, positions, colour, { width = 2, dash = [], dots = 0 } = {}) {
    const far = 20 * Math.max(view.width, view.height);
    const points = positions.map(view.toScreen).filter(([x, y]) => Math.abs(x) < far && Math.abs(y) < far);
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = width;
    pen.lineJoin = "round";
    pen.setLineDash(dash);
    pen.beginPath();
    points.forEach(([x, y]) => pen.lineTo(x, y));
    pen.stroke();
    pen.setLineDash([]);
    if (dots > 0) disks(pen, points, dots);
  }

  function disks(pen, points, radius) {
    pen.beginPath();
    for (const [x, y] of points) {
      pen.moveTo(x + radius, y);
      pen.arc(x, y, radius, 0, 2 * Math.PI);
    }
    pen.fill();
  }

  const dot = (pen, point, radius) => disks(pen, [point], radius);

  /** An image of w x h pixels for the whole view, and transparent where nothing is drawn. */
  function layer([w, h], view, drawn) {
    const image = document.createElement("canvas");
    [image.width, image.height] = [w, h];
    const pen = image.getContext("2d");
    pen.scale(w / view.width, h / view.height);
    drawn(pen);
    return image;
  }

  function cloud(pen, view, positions, colour) {
    pen.fillStyle = colour;
    for (const position of positions) {
      const [x, y] = view.toScreen(position);
      if (x > -5 && y > -5 && x < view.width + 5 && y < view.height + 5) pen.fillRect(x - 1.5, y - 1.5, 3, 3);
    }
  }

  function arrow(pen, from, to, colour) {
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]], length = Math.hypot(dx, dy);
    if (length < 1) return;
    const [ux, uy] = [dx / length, dy / length];
    pen.strokeStyle = colour;
    pen.lineWidth = 2.5;
    pen.beginPath();
    pen.moveTo(...from);
    pen.lineTo(...to);
    pen.moveTo(to[0] - 9 * ux + 5 * uy, to[1] - 9 * uy - 5 * ux);
    pen.lineTo(...to);
    pen.lineTo(to[0] - 9 * ux - 5 * uy, to[1] - 9 * uy + 5 * ux);
    pen.stroke();
  }

  /** A name that is legible on any background. */
  function label(pen, text, [x, y], { ink, paper }) {
    pen.font = "italic 15px Georgia, serif";
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.lineWidth = 4;
    pen.strokeStyle = paper;
    pen.strokeText(text, x, y);
    pen.fillStyle = ink;
    pen.fillText(text, x, y);
  }

  /** Plot numbers along the steps, with 0 or 1 as a separate line; `log` gives a scale of powers of ten. */
  function series(canvas, values, { colour, ink, faint, reference, log = false, mark = null, steps }) {
    const on = context(canvas);
    if (on === null) return;
    const { pen, width, height } = on, [left, right, top, bottom] = [52, 10, 10, 20];
    const scale = (x) => (log ? Math.log10(Math.max(x, 1e-300)) : x);
    const y_of = values.map(scale).filter(Number.isFinite), zero = scale(reference);
    let [least, most] = [Math.min(zero, ...y_of), Math.max(zero, ...y_of)];
    const least_span = log ? 0.2 : 1e-3;
    if (most - least < least_span) [least, most] = [least - least_span / 2, most + least_span / 2];
    const x_at = (k) => left + (k / Math.max(steps, 1)) * (width - left - right);
    const y_at = (y) => top + ((most - y) / (most - least)) * (height - top - bottom);
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = ink;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const said = (y) => (log ? short(10 ** y) : short(y));
    for (const y of [least, most]) pen.fillText(said(y), left - 6, y_at(y));
    if (Math.min(y_at(zero) - y_at(most), y_at(least) - y_at(zero)) > 12) pen.fillText(short(reference), left - 6, y_at(zero));
    pen.textAlign = "center";
    for (const k of [0, steps]) pen.fillText(`${k}`, x_at(k), height - 8);
    pen.fillText("step", (left + width - right) / 2, height - 8);
    pen.strokeStyle = faint;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(left, y_at(zero));
    pen.lineTo(width - right, y_at(zero));
    pen.stroke();
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 2;
    pen.beginPath();
    values.forEach((value, k) => Number.isFinite(scale(value)) && pen.lineTo(x_at(k), y_at(scale(value))));
    pen.stroke();
    if (mark !== null && Number.isFinite(scale(values[mark]))) dot(pen, [x_at(mark), y_at(scale(values[mark]))], 4);
  }

  const short = (x) => (x !== 0 && (Math.abs(x) >= 1e4 || Math.abs(x) < 1e-3) ? x.toExponential(0) : `${Number(x.toPrecision(2))}`);

  refhmc.picture = { View, arrow, bands, cloud, colours, context, dot, label, layer, line, series };
})((globalThis.refhmc ??= {}));
