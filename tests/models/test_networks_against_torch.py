"""Gradients of networks of the papers' sizes compared with those of PyTorch: `pip install ".[torch]"`, `pytest -m slow`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import refhmc

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

ACTIVATIONS = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh, "selu": torch.nn.SELU}
RNG = np.random.default_rng(0)
CURVE = RNG.normal(size=(400, 1))
IMAGES = RNG.random((500, 28, 28))


def dense(widths: list[int], activation: str) -> list:
    layers: list = []
    for a, b in itertools.pairwise(widths):
        layers += [torch.nn.Linear(a, b), ACTIVATIONS[activation]()]
    return layers[:-1]


def convolutional(channels: list[int], widths: list[int], activation: str) -> list:
    layers: list = []
    for a, b in zip([1, *channels[:-1]], channels, strict=True):
        layers += [torch.nn.Conv2d(a, b, 5), torch.nn.MaxPool2d(2), ACTIVATIONS[activation]()]
    return [*layers, torch.nn.Flatten(), *dense([16 * channels[-1], *widths], activation)]


def curve(widths: list[int], activation: str) -> tuple:
    y = np.sin(3 * CURVE)
    model = refhmc.models.MLP(widths, CURVE, y, activation=activation, output_precision=110.0, prior_precision=0.3)

    def likelihood(f):
        return -55.0 * ((f - torch.tensor(y)) ** 2).sum()

    return model, dense(widths, activation), torch.tensor(CURVE), likelihood


def classes(make, *arguments) -> tuple:
    labels = RNG.integers(0, 10, len(IMAGES))

    def likelihood(f):
        return -torch.nn.functional.cross_entropy(f, torch.tensor(labels), reduction="sum")

    return *make(labels, *arguments), likelihood


def pictures(labels, channels: list[int], hidden: list[int], activation: str) -> tuple:
    model = refhmc.models.CNN(
        IMAGES, labels, channels=channels, dense=hidden, activation=activation, prior_precision=0.3, batch=130
    )
    return model, convolutional(channels, [*hidden, 10], activation), torch.tensor(IMAGES[:, None])


def flat(labels, hidden: list[int], activation: str) -> tuple:
    X = IMAGES.reshape(len(IMAGES), -1)
    model = refhmc.models.MLP(
        [X.shape[1], *hidden, 10], X, labels, activation=activation, likelihood="softmax", prior_precision=0.3
    )
    return model, dense([X.shape[1], *hidden, 10], activation), torch.tensor(X)


CASES = {
    "1-100-100-1": (lambda: curve([1, 100, 100, 1], "relu"), 10_401),
    "1-100-100-100-1": (lambda: curve([1, 100, 100, 100, 1], "selu"), 20_501),
    "784-100-10": (lambda: classes(flat, [100], "tanh"), 79_510),
    "cnn 10-20-100": (lambda: classes(pictures, [10, 20], [100], "relu"), 38_390),
    "cnn 16-32-46": (lambda: classes(pictures, [16, 32], [46], "selu"), 37_316),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_gradient_and_density(name):
    """To 1e-10 of the largest entry; differences of the density between two positions to 1e-10."""
    (make, size), rng = CASES[name], np.random.default_rng(1)
    model, layers, X, likelihood = make()
    net = torch.nn.Sequential(*layers).to(torch.float64)
    weights = list(net.parameters())
    assert model.dim == size == sum(w.numel() for w in weights)
    densities, values = [], []
    for _ in range(2):
        q = model.initial(rng)
        torch.nn.utils.vector_to_parameters(torch.tensor(q), weights)
        L = likelihood(net(X)) - 0.15 * sum((w**2).sum() for w in weights)
        want = torch.cat([g.reshape(-1) for g in torch.autograd.grad(L, weights)]).numpy()
        assert np.abs(model.gradient(q) - want).max() <= 1e-10 * np.abs(want).max()
        densities.append(model.log_density(q))
        values.append(float(L.detach()))
    assert densities[1] - densities[0] == pytest.approx(values[1] - values[0], rel=1e-10)
