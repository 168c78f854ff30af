"""Parents of variables, the blocks that follow from them, and the coordinates of a variable."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refhmc
from refhmc.core.hierarchy import blocks_of, coordinates_of, parents_of, parents_of_variables, variable_of
from refhmc.errors import ModelError, ShapeError
from refhmc.parameters import CholeskyCorrelation, Positive, Real, Simplex

NAMES = ["theta[0]", "theta[1]", "mu", "log_tau"]
PARENTS = {"theta": ("mu", "log_tau"), "mu": (), "log_tau": ()}


def log_density(q):
    return -0.5 * q @ q


def gradient(q):
    return -q


def constrain(q):
    return {"theta": q[..., :2], "mu": q[..., 2], "tau": np.exp(q[..., 3])}


def model(parents=None, **options):
    options = {"names": NAMES, "constrain": constrain, **options}
    return refhmc.Model(4, log_density, gradient, parents=parents, **options)


@st.composite
def graphs(draw):
    """A random directed acyclic graph, as an adjacency matrix A[child, parent] without an order of its nodes."""
    n = draw(st.integers(1, 9))
    edges = np.array(draw(st.lists(st.booleans(), min_size=n * n, max_size=n * n))).reshape(n, n)
    order = np.array(draw(st.permutations(range(n))))
    return np.tril(edges, -1)[np.ix_(order, order)]


@given(graphs())
def test_blocks_are_the_lengths_of_the_longest_paths(A):
    """The matrix power A^k has an entry in a row if and only if a path of k edges leads to this node."""
    names = [f"v{i}" for i in range(len(A))]
    parents = {names[i]: [names[j] for j in np.flatnonzero(A[i])] for i in range(len(A))}
    powers = [np.linalg.matrix_power(A.astype(int), k).any(axis=1) for k in range(len(A))]
    depth = [max(k for k, reached in enumerate(powers) if reached[i]) for i in range(len(A))]
    blocks = blocks_of(SimpleNamespace(parents=parents_of(parents, names)))
    assert blocks == [[names[i] for i in range(len(A)) if depth[i] == k] for k in range(max(depth) + 1)]
    block = {name: k for k, members in enumerate(blocks) for name in members}
    assert all(block[parent] < block[name] for name in names for parent in parents[name])


@given(graphs(), st.data())
def test_cycle_is_rejected(A, data):
    names = [f"v{i}" for i in range(len(A))]
    parents = {names[i]: {names[j] for j in np.flatnonzero(A[i])} for i in range(len(A))}
    child = data.draw(st.sampled_from(names))
    above, waiting = {child}, [child]
    while waiting:
        new = parents[waiting.pop()] - above
        above |= new
        waiting += new
    ancestor = data.draw(st.sampled_from(sorted(above)))
    parents[ancestor] = parents[ancestor] | {child}
    with pytest.raises(ShapeError, match="must not form a cycle; got v"):
        parents_of(parents, names)


def test_blocks_of_a_model():
    assert model({"theta": ["mu", "log_tau"]}).parents == PARENTS
    assert blocks_of(model({"theta": ["mu", "log_tau"]})) == [["mu", "log_tau"], ["theta"]]
    assert blocks_of(model({"theta": "mu", "mu": "log_tau"})) == [["log_tau"], ["mu"], ["theta"]]
    assert blocks_of(model({})) == [["theta", "mu", "log_tau"]]
    assert blocks_of(model()) is None


def test_parents_of_entries_become_those_of_variables():
    given = {"tau": [], "x[0]": ["tau"], "x[1]": ["x[0]", "mu"], "W[0][1]": ["x[1]"], "mu": []}
    assert parents_of_variables(given) == {"tau": (), "x": ("tau", "mu"), "W": ("x",), "mu": ()}
    assert parents_of_variables({"a[0]": [], "b": ["a[0]"], "a[1]": ["b"]}) is None


@pytest.mark.parametrize(
    ("parents", "error", "message"),
    [
        ({"theta": ["mu", "tau"]}, ShapeError, r"names of variables \(theta, mu, log_tau\); got 'tau'"),
        ({"theta[0]": ["mu"]}, ShapeError, r"got 'theta\[0\]'"),
        ({"theta": ["mu", 3]}, ShapeError, "got 3"),
        ({"theta": ["theta"]}, ShapeError, "cycle; got theta -> theta"),
        ({"theta": ["mu"], "mu": ["theta"]}, ShapeError, "cycle; got .* -> .* -> "),
        ({"theta": 3}, ModelError, r"parents\['theta'\] must be names of variables; got 3"),
        (["theta"], ModelError, "must be a dictionary of names by variable; got list"),
    ],
)
def test_invalid_parents_are_rejected(parents, error, message):
    with pytest.raises(error, match=message):
        model(parents)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("theta", [0, 1]), ("theta[1]", [1]), ("mu", [2]), ("log_tau", [3]), ("tau", [3])],
)
def test_coordinates_of_a_variable(name, expected):
    assert coordinates_of(model(), name) == expected


def test_coordinates_of_an_unknown_variable_names_those_there_are():
    with pytest.raises(ValueError, match="no variable 'sigma'. Its variables are theta, mu, log_tau, tau"):
        coordinates_of(model(), "sigma")


def test_coordinates_of_a_matrix_and_of_its_rows():
    names = [f"W[{i}][{j}]" for i in range(2) for j in range(2)]
    matrix = model({}, names=names, constrain=None)
    assert [variable_of(name) for name in names] == ["W"] * 4
    assert coordinates_of(matrix, "W") == [0, 1, 2, 3]
    assert coordinates_of(matrix, "W[1]") == [2, 3]
    assert blocks_of(matrix) == [["W"]]


def test_parents_are_kept_in_copies():
    given = model(PARENTS)
    assert pickle.loads(pickle.dumps(given)).parents == PARENTS
    assert refhmc.models.SplitModel([given, given]).parents == PARENTS


def test_parents_are_part_of_the_fingerprint():
    assert model(PARENTS).fingerprint() == model({"theta": ["mu", "log_tau"]}).fingerprint()
    assert len({model(parents).fingerprint() for parents in (None, {}, PARENTS)}) == 3


def test_a_conditional_keeps_the_parents_within_its_block():
    given = model({"theta": "mu", "mu": "log_tau"})
    assert refhmc.conditional(given, ["theta", "mu"], np.zeros(4)).parents == {"theta": ("mu",), "mu": ()}
    assert refhmc.conditional(given, ["theta[1]", "log_tau"], np.zeros(4)).parents == {"theta": (), "log_tau": ()}
    assert refhmc.conditional(model(), ["theta"], np.zeros(4)).parents is None


@pytest.mark.parametrize(
    ("built_in", "expected"),
    [
        (refhmc.models.Funnel(3), [["v"], ["x"]]),
        (refhmc.models.Funnel(0), [["v"]]),
        (refhmc.models.EightSchools(centered=True), [["mu", "log_tau"], ["theta"]]),
        (refhmc.models.EightSchools(), [["theta_raw", "mu", "log_tau"]]),
        (refhmc.models.StochasticVolatility(T=5), [["log_beta", "log_sigma", "atanh_phi"], ["x"]]),
        (refhmc.models.EightSchools(centered=True).split(2), [["mu", "log_tau"], ["theta"]]),
    ],
    ids=["funnel", "funnel of one", "centred schools", "schools", "stochastic volatility", "split"],
)
def test_blocks_of_built_in_models(built_in, expected):
    assert blocks_of(built_in) == expected


# ------------------------------------------------------------------------------------------------- named parameters


def with_parents(parents):
    return refhmc.Parameters(theta=Real(shape=2), mu=Real(), tau=Positive(), parents=parents)


def of_values(parameters):
    return parameters.model(log_density, gradient, in_python="only its names are used")


def test_parents_of_parameters_become_those_of_coordinates():
    parameters = with_parents({"theta": ["mu", "tau"]})
    assert parameters.parents == {"theta": ("mu", "tau"), "mu": (), "tau": ()}
    assert of_values(parameters).parents == PARENTS
    assert of_values(with_parents(None)).parents is None
    assert of_values(with_parents({})).parents == {"theta": (), "mu": (), "log_tau": ()}


def test_parents_of_parameters_are_kept_in_copies():
    parameters = with_parents({"theta": ["mu", "tau"]})
    again = pickle.loads(pickle.dumps(parameters))
    assert again.parents == parameters.parents
    assert repr(again) == repr(parameters)
    assert "parents={'theta': ('mu', 'tau'), 'mu': (), 'tau': ()})" in repr(parameters)
    assert pickle.loads(pickle.dumps(of_values(parameters))).parents == PARENTS


def test_parameters_without_coordinates_are_not_parents():
    parameters = refhmc.Parameters(
        x=Real(), p=Simplex(1), L=CholeskyCorrelation(1), parents={"x": ["p", "L"], "L": ["p"]}
    )
    assert of_values(parameters).parents == {"x": ()}


def test_unknown_parents_of_parameters_are_rejected():
    with pytest.raises(ShapeError, match=r"\(theta, mu, tau\); got 'log_tau'"):
        with_parents({"theta": ["mu", "log_tau"]})
    with pytest.raises(ModelError, match="parents is not an option of Parameters.model, because it follows"):
        with_parents({}).model(log_density, gradient, parents={})


def test_a_parameter_cannot_be_called_parents():
    with pytest.raises(ModelError, match="must not be 'parents'"):
        refhmc.Parameters(x=Real(), parents=Real())
