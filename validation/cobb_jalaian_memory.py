"""Cobb and Jalaian (2021), section 5.3: the memory of a symmetric split on Fashion-MNIST, in 3, 10 and 30 parts.

    python -m validation.cobb_jalaian_memory

The network is the paper's of 38,390 weights, in single precision as theirs. Each row is a process of its own: one transition of
HMC with two steps of the symmetric split, by ``refhmc.sample``, after the same on a few images (so that what is compiled is not
counted), without the check of the gradient before the first draw (preflight=False; it evaluates hundreds of gradients of all
data at the kinks of ReLU, and keeps them). Counted is what this takes beyond what was held before, the data included in that:

    arrays      the peak of NumPy's own account (tracemalloc)
    process     the peak of the resident memory (VmHWM, set back before; Linux alone)

A part is evaluated whole, as in the paper, or in batches of 100 images, refhmc's default.

A part holds a few vectors as long as the weights beside its share of the data; the buffer of draws and the chain's own vectors
are there once.

Claims: (1) whole parts: the arrays' peak is a + b n with n the images of a part, each row within a tenth of the line through
the others; (2) a quarter of the images in parts of nearly the same size lies on that line, within a tenth; (3) in batches of
100 and as many parts, the whole data take what a quarter of them does, within a tenth; (4) in batches of 100, 30 parts take
no more than 3 do and 20 vectors of the weights for each further part. The process' figures are not judged.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import gc
import multiprocessing
import pathlib
import tracemalloc
import warnings

import numpy as np

import refhmc
from validation import common, judging
from validation.cobb_jalaian_sets import OPTION, TRAINING, images

NAME = "cobb_jalaian_memory"
PARTS, STEPS, STEP = (3, 10, 30), 2, 2e-5
BATCH, WEIGHTS = 100, 38_390
MB = 1e6
NEAR = 0.1


def resident(which: str) -> float:
    """VmRSS, now, or VmHWM, the most since it was set back; bytes, NaN where there is no such account."""
    try:
        lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return float("nan")
    return float(next(line for line in lines if line.startswith(which)).split()[1]) * 1024


def set_back() -> None:
    """Free memory to the system, VmHWM to VmRSS; nothing where the system has neither."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):
        pass


def transition(model, n_parts: int) -> None:
    """Two steps and the decision, from the network's own start."""
    kernel = refhmc.HMC(
        step_size=STEP,
        n_steps=STEPS,
        metric=refhmc.metrics.Identity(),
        integrator=refhmc.integrators.SymmetricSplit(),
    )
    split = model.split(n_parts)
    start = model.initial(np.random.default_rng(0))
    options = {"draws": 1, "tune": 0, "chains": 1, "initvals": start, "progressbar": False, "raw": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single draw
        refhmc.sample(split, kernel, random_seed=0, preflight=False, **options)


def measure(folder: pathlib.Path, n: int, n_parts: int, whole: bool) -> dict:
    """One row, in this process."""
    X, y = images(folder, "fashion_mnist", slice(n))
    options = {"dtype": np.float32, "batch": -(-n // n_parts) if whole else BATCH, "n_classes": 10}
    transition(refhmc.models.CNN(X[: 2 * n_parts], y[: 2 * n_parts], **options), n_parts)
    model, data = refhmc.models.CNN(X, y, **options), X.nbytes + y.nbytes
    del X, y
    set_back()
    before = resident("VmRSS")
    tracemalloc.start()
    transition(model, n_parts)
    arrays = tracemalloc.get_traced_memory()[1]
    process = resident("VmHWM") - before
    return {"images": n, "parts": n_parts, "whole": whole, "data": data, "arrays": arrays, "process": process}


def jobs(n: int) -> list[tuple[int, int, bool]]:
    """Images, parts, whether parts are evaluated whole; a quarter of the images in parts of the same size, too."""
    plan = [(n, M, whole) for whole in (True, False) for M in PARTS]
    return [*plan, (n // 4, max(PARTS) // 4, True), (n // 4, min(PARTS), False)]


def claims(rows: list[dict]) -> list[tuple[str, str, bool]]:
    """Claim, what decides it, whether it holds."""
    most = max(row["images"] for row in rows)
    whole = [row for row in rows if row["whole"] and row["images"] == most]
    quarter = next(row for row in rows if row["whole"] and row["images"] < most)
    n, arrays = np.array([(row["images"] / row["parts"], row["arrays"]) for row in whole]).T
    off = []
    for k in range(len(n)):
        others = np.arange(len(n)) != k
        off.append(arrays[k] / np.polyval(np.polyfit(n[others], arrays[others], 1), n[k]) - 1)
    slope, constant = np.polyfit(n, arrays, 1)
    of_size = quarter["images"] / quarter["parts"]
    same = quarter["arrays"] / (constant + slope * of_size) - 1
    batched = {(row["images"] == most, row["parts"]): row["arrays"] for row in rows if not row["whole"]}
    few, many, less = batched[True, min(PARTS)], batched[True, max(PARTS)], batched[False, min(PARTS)]
    a_part = (many - few) / (max(PARTS) - min(PARTS)) / (8 * WEIGHTS)
    line = f"{constant / MB:.1f} MB + {slope / 1e3:.1f} kB an image of the part"
    return [
        ("whole parts: grows with the part", f"{line}; off by {np.abs(off).max():.1%}", np.abs(off).max() < NEAR),
        ("whole parts: a quarter of the data is on the line", f"{same:+.1%}", abs(same) < NEAR),
        ("batches of 100: the data do not matter", f"{few / less - 1:+.1%}", abs(few / less - 1) < NEAR),
        ("batches of 100: parts cost vectors", f"{a_part:.1f} vectors of the weights for a further part", a_part < 20),
    ]


def opening(data: dict) -> str:
    """Return the first line of the page for the contents of its JSON file."""
    return judging.opening(["holds" if held else "does not hold" for _, _, held in data["claims"]], "claims")


def main() -> None:
    chosen = common.command_line(__doc__, trials=1, draws=1, images={"type": int, "default": TRAINING}, **OPTION)
    n = 1200 if chosen.quick else chosen.images
    context, rows = multiprocessing.get_context("spawn"), []
    for job in jobs(n):
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
            rows.append(pool.submit(measure, chosen.data, *job).result())
        print(rows[-1], flush=True)
    held = claims(rows)
    header = ["images", "parts", "images of a part", "at once", "data, MB", "arrays, MB", "process, MB"]
    body = [
        [row["images"], row["parts"], row["images"] // row["parts"], "the part" if row["whole"] else BATCH]
        + [f"{row[key] / MB:.1f}" for key in ("data", "arrays", "process")]
        for row in rows
    ]
    text = "\n\n".join(
        [
            (__doc__ or "").split("\n\n", 2)[2].strip(),
            common.markdown(header, body),
            common.markdown(["claim", "found", "verdict"], [(*x[:2], "PASS" if x[2] else "FAIL") for x in held]),
            "The paper names 7,928 MB on its GPU for all 48,000 images at once, and no figure for the splits.",
        ]
    )
    name = NAME + ("_quick" if chosen.quick else "")
    common.write_results(
        name, "Memory of the symmetric split (Cobb and Jalaian 2021)", text, {"rows": rows, "claims": held}, opening
    )
    for claim, found, good in held:
        print("PASS" if good else "FAIL", claim, found)


if __name__ == "__main__":
    main()
