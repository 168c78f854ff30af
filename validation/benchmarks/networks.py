"""Networks side by side with PyTorch and hamiltorch: ``python -m validation.benchmarks.networks [--rounds 30]``.

One core, one thread, the same weights and the same arithmetic's width, one call of each library after the other in every round.

- **gradient**: log density and gradient of all weights, refhmc's whole call against Torch's autograd;
- **split step**: a step of symmetric split HMC in parts of 100 points: ``refhmc.sample`` against hamiltorch's
  ``sample_split_model``, the authors' program, where it can be imported. MLPs in four parts, float64: of the whole call that
  makes 20 draws of L = 30 steps, and of the 40 further draws of one that makes 60. The CNN in 20 parts: of 2 draws of L = 5 and
  of 4 further ones.

The MLPs leave room: what an evaluation costs beside its matrix products. The CNN leaves little: a step asks for the gradients
of 2,000 images, all but two of the parts twice, some 6 million floating-point operations each, 24 billion in all. Three times
hamiltorch's speed in float32 would be 100 billion a second, which on this core NumPy's product of two 1024 x 1024 matrices
makes by itself. Of a whole call of two draws about half is the pre-flight check (13 to 15 s with it, 7 without, float32).

The figure is the median of the rounds' ratios, others over refhmc, with the middle half of them.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import pathlib
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

if __package__ in (None, ""):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from validation.benchmarks import common

WIDTHS = {"mlp 1-100-100-1": [1, 100, 100, 1], "mlp 1-100-100-100-1": [1, 100, 100, 100, 1]}
PRECISION = 110.4439498986428  # of the outputs, in hamiltorch's notebook on these data
STEP_SIZE = 5e-4


class Run(NamedTuple):
    """A run of a split: parts, steps of a trajectory, the draws of the shorter and of the longer call."""

    parts: int
    steps: int
    draws: tuple[int, int]


OF_MLP, OF_CNN = Run(4, 30, (20, 60)), Run(20, 5, (2, 6))
PACKAGES = ["refhmc", "torch", "numpy", "numba"]
MARK = "RESULT "


def alternately(ours: Callable, theirs: Callable, rounds: int) -> np.ndarray:
    """Seconds of each, (rounds, 2), after one call of each that is not counted."""
    seconds = np.empty((rounds, 2))
    for call in (ours, theirs):
        call()
    for k in range(rounds):
        for j, call in enumerate((ours, theirs)):
            start = time.perf_counter()
            call()
            seconds[k, j] = time.perf_counter() - start
    return seconds


def row_of(seconds: np.ndarray) -> dict[str, float]:
    """Medians of each, and the ratio theirs / ours with its middle half."""
    low, middle, high = np.quantile(seconds[:, 1] / seconds[:, 0], [0.25, 0.5, 0.75])
    ours, theirs = np.median(seconds, axis=0)
    return {"ours": ours, "theirs": theirs, "ratio": middle, "low": low, "high": high}


def regression(widths: list[int], dtype: type) -> tuple:
    """refhmc's model and Torch's net on 400 points on a curve, with the same random weights."""
    import torch
    from torch import nn

    import refhmc

    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 1))
    y = np.sin(3 * x) + 0.1 * rng.normal(size=x.shape)
    model = refhmc.models.MLP(widths, x, y, activation="relu", output_precision=PRECISION, dtype=dtype)
    layers = [part for a, b in itertools.pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())][:-1]
    kind = torch.float64 if dtype is np.float64 else torch.float32
    return model, nn.Sequential(*layers).to(kind), torch.tensor(x, dtype=kind), torch.tensor(y, dtype=kind)


def images(dtype: type) -> tuple:
    """The convolutional network of 37,316 weights on 2,000 images."""
    import torch
    from torch import nn

    import refhmc

    rng = np.random.default_rng(0)
    X, y = rng.random((2000, 28, 28)), rng.integers(0, 10, 2000)
    model = refhmc.models.CNN(X, y, channels=[16, 32], dense=[46], dtype=dtype, batch=100)
    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(16, 32, 5), nn.MaxPool2d(2), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(512, 46), nn.ReLU(), nn.Linear(46, 10)),
    )
    kind = torch.float64 if dtype is np.float64 else torch.float32
    return model, net.to(kind), torch.tensor(X[:, None], dtype=kind), torch.tensor(y)


def gradients(model, net, x, y, rounds: int) -> dict[str, float]:
    """The two gradients in turn; an assertion that they are the same."""
    import torch

    q = model.initial(np.random.default_rng(1))
    weights = list(net.parameters())
    torch.nn.utils.vector_to_parameters(torch.tensor(q, dtype=x.dtype), weights)
    classes = y.dtype == torch.int64

    def theirs() -> list:
        total: list = []
        for start in range(0, len(x), 100 if classes else len(x)):
            part = slice(start, start + (100 if classes else len(x)))
            f = net(x[part])
            if classes:
                L = -torch.nn.functional.cross_entropy(f, y[part], reduction="sum")
            else:
                L = -0.5 * PRECISION * ((f - y[part]) ** 2).sum()
            own = torch.autograd.grad(L, weights)
            total = [a + b for a, b in zip(total, own, strict=True)] if total else list(own)
        return [a - w.detach() for a, w in zip(total, weights, strict=True)]

    want = torch.cat([g.reshape(-1) for g in theirs()]).numpy()
    assert np.abs(model.gradient(q) - want).max() <= (1e-10 if x.dtype == torch.float64 else 1e-4) * np.abs(want).max()
    return row_of(alternately(lambda: model.core.value_and_gradient(q), theirs, rounds))


def split_steps(model, net, x, y, run: Run, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """A step of the whole call, and of further draws; hamiltorch has the same kinetic energy and prior."""
    import hamiltorch
    import torch

    import refhmc

    q = model.initial(np.random.default_rng(1))
    split, images = model.split(run.parts), y.dtype == torch.int64
    kernel = refhmc.HMC(
        step_size=STEP_SIZE,
        n_steps=run.steps,
        metric=refhmc.metrics.Identity(),
        integrator=refhmc.integrators.SymmetricSplit(),
    )
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(x) // run.parts)
    options = {"tune": 0, "chains": 1, "initvals": q, "progressbar": False, "raw": True}

    def ours(draws: int) -> None:
        refhmc.sample(split, kernel, draws=draws, random_seed=1, **options)

    def theirs(draws: int) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            hamiltorch.sample_split_model(
                net,
                loader,
                torch.tensor(q, dtype=x.dtype),
                run.parts,
                model_loss="multi_class_linear_output" if images else "regression",
                num_samples=draws + 1,
                num_steps_per_sample=run.steps,
                step_size=STEP_SIZE,
                tau_out=1.0 if images else PRECISION,
                integrator=hamiltorch.Integrator.SPLITTING,
                verbose=True,
            )

    few, many = (alternately(lambda n=n: ours(n), lambda n=n: theirs(n), rounds) for n in run.draws)
    shorter, longer = (n * run.steps for n in run.draws)
    return row_of(few / shorter), row_of((many - few) / (longer - shorter))


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """All rows, in this process."""
    import warnings

    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = {}
    for dtype in (np.float64, np.float32):
        for name, widths in WIDTHS.items():
            rows[f"gradient, {name}, {dtype.__name__}"] = gradients(*regression(widths, dtype), rounds=5 * rounds)
        name = f"gradient, cnn 16-32-46, 2,000 images, {dtype.__name__}"
        rows[name] = gradients(*images(dtype), rounds=max(3, rounds // 6))
    with contextlib.suppress(ImportError):
        for name, widths in WIDTHS.items():
            steps = split_steps(*regression(widths, np.float64), OF_MLP, rounds=max(5, rounds // 6))
            for part, row in zip(("whole call", "further draws"), steps, strict=True):
                rows[f"symmetric split step, {name}, {part}"] = row
        for dtype in (np.float64, np.float32):
            steps = split_steps(*images(dtype), OF_CNN, rounds=max(3, rounds // 10))
            for part, row in zip(("whole call", "further draws"), steps, strict=True):
                rows[f"symmetric split step, cnn 16-32-46, 20 parts, {dtype.__name__}, {part}"] = row
    return rows


def text_of(rows: dict[str, dict[str, float]]) -> str:
    """The rows as a table, under what they are."""
    header = ["row", "refhmc ms", "theirs ms", "theirs / refhmc", "middle half"]
    cells = [
        [
            name,
            f"{1e3 * row['ours']:.3g}",
            f"{1e3 * row['theirs']:.3g}",
            f"{row['ratio']:.2f}",
            f"{row['low']:.2f} to {row['high']:.2f}",
        ]
        for name, row in rows.items()
    ]
    return str(__doc__).split("\n\n", 2)[2].strip() + "\n\n" + common.table(header, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--measure", action="store_true", help="measure in this process and print a line of JSON")
    options = parser.parse_args()
    if options.measure:
        print(MARK + json.dumps(measure(options.rounds), default=float))
        return
    common.pin_to_one_core()
    where = common.machine(PACKAGES)
    done = common.run_python(
        ["-m", "validation.benchmarks.networks", "--measure", "--rounds", str(options.rounds)], 1800
    )
    found = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if not found:
        sys.exit(done.stderr)
    rows = json.loads(found[-1][len(MARK) :])
    common.report("networks", "Networks beside PyTorch and hamiltorch", text_of(rows), {"rows": rows}, where)


if __name__ == "__main__":
    main()
