"""The kit on hierarchical metrics: golden vectors by a second definition, the protocol, and a program without refhmc.

``Explicit`` knows H only. Every derivative is a difference quotient in 110 digits, so that the answers have more than 50.
"""

from __future__ import annotations

import argparse
import json
import sys

import mpmath
import numpy as np
import pytest

import refhmc
import refhmc.check as rc
from refhmc.check.protocol.commands import add_commands
from refhmc.check.protocol.driver import check_program
from refhmc.check.protocol.messages import array, hexes
from refhmc.check.protocol.oracle import Oracle
from refhmc.check.protocol.program import Program
from refhmc.check.vectors import golden as gv
from refhmc.check.vectors.own_answers import SOLVER_TOLERANCE, answered
from refhmc.integrators import BlockLeapfrog
from refhmc.metrics import Hierarchical
from tests.helpers.hierarchical_cases import funnel_metric, random_metric, schools_metric

# ------------------------------------------------------------------------------------------------- golden vectors

DIGITS, INCREMENT = 110, mpmath.mpf(10) ** -28
LEVELS = {"funnel": [0, 1, 1, 1], "eight-schools-centred": [1, 1, 1, 1, 0], "gaussian": [1, 2, 0]}
RECORDS = {
    r.id: r
    for r in gv.records()
    if r.op == "momentum" or r.args.get("integrator") == "block-leapfrog" or r.args.get("metric") == "hierarchical"
}


def exact(x):
    return [exact(each) for each in x] if isinstance(x, list | np.ndarray) else mpmath.mpf(float(x))


def funnel(q, data):
    v, x = q[0], q[1:]
    return -(v**2) / 18 + 3 * v / 2 - mpmath.exp(v) * mpmath.fsum(y * y for y in x) / 2


def schools(q, data):
    theta, mu, u = q[:3], q[3], q[4]
    fit = mpmath.fsum(((y - t) / s) ** 2 for y, t, s in zip(data["y"], theta, data["sigma"], strict=True))
    prior = mpmath.fsum((t - mu) ** 2 for t in theta) * mpmath.exp(-2 * u)
    return -fit / 2 - prior / 2 - 3 * u - mu**2 / 50 + u - mpmath.log(1 + mpmath.exp(2 * u) / 25)


def gaussian(q, data):
    x = mpmath.matrix([a - b for a, b in zip(q, data["mean"], strict=True)])
    return -(x.T * mpmath.lu_solve(mpmath.matrix(data["covariance"]), x))[0] / 2


def fisher_of_funnel(q, data):
    return mpmath.diag([mpmath.mpf(1) / 9 + mpmath.mpf(3) / 2, *[mpmath.exp(q[0])] * 3])


def fisher_of_schools(q, data):
    """The precision of theta and mu given log tau, and 2 J + 1/2."""
    prior = mpmath.exp(-2 * q[4])
    G = mpmath.diag([1 / s**2 + prior for s in data["sigma"]] + [3 * prior + mpmath.mpf(1) / 25, mpmath.mpf("6.5")])
    for j in range(3):
        G[j, 3] = G[3, j] = -prior
    return G


def fisher_of_gaussian(q, data):
    return mpmath.matrix(data["covariance"]) ** -1


LOG_DENSITY = {"funnel": funnel, "eight-schools-centred": schools, "gaussian": gaussian}
FISHER = {"funnel": fisher_of_funnel, "eight-schools-centred": fisher_of_schools, "gaussian": fisher_of_gaussian}


class Explicit:
    """H = phi + sum_b K_b of a record: phi = -L + log det M / 2 and K_b = p_b' M_b^-1 p_b / 2."""

    def __init__(self, record):
        self.target, self.args = record.target, record.args
        self.data = {key: exact(value) for key, value in gv.targets()[record.target].data.items()}
        self.levels = LEVELS[record.target]

    def mass(self, q):
        if self.args["metric"] == "fisher":
            return FISHER[self.target](q, self.data)
        a, j, c = (np.asarray(self.args[key]) for key in ("constants", "parents", "coefficients"))
        masses = [
            mpmath.fsum(
                mpmath.exp(exact(a[k, i]) + mpmath.fsum(exact(c[k, p, i]) * q[int(j[p, i])] for p in range(len(j))))
                for k in range(len(a))
            )
            for i in range(len(q))
        ]
        return mpmath.diag(masses)

    def phi(self, q):
        return -LOG_DENSITY[self.target](q, self.data) + mpmath.log(mpmath.det(self.mass(q))) / 2

    def kinetic(self, b, q, p):
        block = [i for i, level in enumerate(self.levels) if level == b]
        M, there = self.mass(q), mpmath.matrix([p[i] for i in block])
        part = mpmath.matrix([[M[i, j] for j in block] for i in block])
        return (there.T * mpmath.lu_solve(part, there))[0] / 2

    def energy(self, q, p):
        return self.phi(q) + mpmath.fsum(self.kinetic(b, q, p) for b in set(self.levels))

    def kick(self, q, p, t):
        return q, moved(p, -t, slope(self.phi, q))

    def flow(self, b, q, p, t):
        velocity = slope(lambda x: self.kinetic(b, q, x), p)
        force = slope(lambda x: self.kinetic(b, x, p), q)
        return moved(q, t, velocity), moved(p, -t, force)

    def step(self, q, p, eps):
        later = range(1, max(self.levels) + 1)
        q, p = self.kick(q, p, eps / 2)
        for b in reversed(later):
            q, p = self.flow(b, q, p, eps / 2)
        q, p = self.flow(0, q, p, eps)
        for b in later:
            q, p = self.flow(b, q, p, eps / 2)
        return self.kick(q, p, eps / 2)

    def end(self, q, p):
        w = 1 / (2 - mpmath.cbrt(2))
        for _ in range(int(self.args["n"])):
            for size in [w, 1 - 2 * w, w] if self.args.get("composition") == "yoshida" else [1]:
                q, p = self.step(q, p, size * exact(self.args["eps"]))
        return q, p


def slope(f, x):
    h = INCREMENT
    ends = [[f([y + s * h * (i == k) for i, y in enumerate(x)]) for s in (1, -1)] for k in range(len(x))]
    return [(up - down) / (2 * h) for up, down in ends]


def moved(x, t, y):
    return [a + t * b for a, b in zip(x, y, strict=True)]


def answer(record):
    """The fields of a record by the second definition."""
    H, (q, p, z) = Explicit(record), (exact(record.inputs.get(key, [])) for key in ("q", "p", "normals"))
    if record.op == "metric":
        M = H.mass(q)
        return {"metric": M.tolist(), "log_det": mpmath.log(mpmath.det(M))}
    if record.op == "momentum":
        return {"p": list(mpmath.cholesky(H.mass(q)) * mpmath.matrix(z))}
    if record.op == "dH":
        return {"dq": slope(lambda x: H.energy(x, p), q), "dp": slope(lambda x: H.energy(q, x), p)}
    end = H.end(q, p)
    error = H.energy(*end) - H.energy(q, p)
    if record.op == "step":
        return {"q": end[0], "p": end[1], "energy_error": error}
    accept = min(mpmath.mpf(1), mpmath.exp(-error))
    accepted = exact(record.inputs["uniforms"])[0] < accept
    return {"q": end[0] if accepted else q, "energy_error": error, "acceptance_rate": accept}


@pytest.mark.parametrize("id", RECORDS)
def test_records_follow_from_the_hamiltonian_alone(id):
    """The printed 36 digits, up to the last one."""
    record = RECORDS[id]
    with mpmath.workdps(DIGITS):
        for key, value in answer(record).items():
            want = np.array(record.exact[key], dtype=object).ravel()
            got = np.array(value, dtype=object).ravel()
            assert len(got) == len(want)
            size = max(1, *(abs(x) for x in got))
            assert all(abs(x - mpmath.mpf(y)) <= mpmath.mpf(10) ** -34 * size for x, y in zip(got, want, strict=True))


def test_there_are_records_of_every_kind():
    kinds = {(r.op, r.target, r.args["metric"]) for r in RECORDS.values()}
    for target, metrics in (("funnel", 2), ("eight-schools-centred", 2), ("gaussian", 1)):
        for metric in ("hierarchical", "fisher")[:metrics]:
            assert {("momentum", target, metric), ("step", target, metric)} <= kinds
        assert {("metric", target, "hierarchical"), ("dH", target, "hierarchical")} <= kinds
    assert {r.op for r in RECORDS.values()} == {"metric", "momentum", "dH", "step", "transition"}
    three = next(r for r in RECORDS.values() if r.op == "step" and r.target == "gaussian").args
    assert set(three["levels"]) == {0, 1, 2}
    assert np.shape(three["coefficients"]) == (2, 2, 3)


def test_levels_of_the_records_are_those_of_refhmc():
    for r in RECORDS.values():
        if r.args["metric"] == "hierarchical" and "levels" in r.args:
            metric = Hierarchical(r.args["constants"], np.asarray(r.args["parents"], int), r.args["coefficients"])
            assert list(metric.levels()) == list(r.args["levels"]) == LEVELS[r.target]


@pytest.mark.parametrize("target", ["funnel", *(pytest.param(t, marks=pytest.mark.sweep) for t in list(LEVELS)[1:])])
def test_refhmc_agrees_with_the_records(target):
    records = [r for r in RECORDS.values() if r.target == target]
    report = gv.compare(answered(records), target=target, solver_tolerance=SOLVER_TOLERANCE)
    report.assert_ok()
    assert {row.name for row in report.rows if row.status == "PASS"} == {f"{r.op}/{target}" for r in records}


# ------------------------------------------------------------------------------------------------------- the protocol


def described(metric):
    a, parents, c = metric.exponents
    return {
        "name": "hierarchical",
        "constants": hexes(a),
        "parents": parents.tolist(),
        "coefficients": [[hexes(row) for row in each] for each in c],
    }


METRIC = described(funnel_metric(2))
POINT = {"target": "funnel", "args": {"n": 2}, "metric": METRIC, "q": [0.3, -0.2, 0.5], "p": [1.0, 0.4, -0.3]}


def test_the_oracle_answers_with_the_metric_and_its_default_integrator():
    H, q, p = refhmc.Hamiltonian(refhmc.models.Funnel(2), funnel_metric(2)), POINT["q"], POINT["p"]
    ask = Oracle().answer
    assert np.array_equal(array(ask({**POINT, "op": "metric"})["G"]), H.mass(q))
    assert np.array_equal(array(ask({**POINT, "op": "dH"})["dHdq"]), H.grad_q(q, p))
    path = refhmc.integrate(H, BlockLeapfrog(), q, p, step_size=0.1, n_steps=5)
    for more in ({}, {"method": "block-leapfrog"}):
        found = ask({**POINT, **more, "op": "step", "eps": 0.1, "n": 5})
        assert np.array_equal(array(found["q"]), path.q[-1])
        assert np.array_equal(array(found["p"]), path.p[-1])
        assert 0 < float(found["tol"]) < 1e-12
    fourth = ask({**POINT, "op": "step", "eps": 0.1, "n": 1, "method": "yoshida(block_leapfrog)"})
    path = refhmc.integrate(H, refhmc.integrators.Yoshida(BlockLeapfrog()), q, p, step_size=0.1, n_steps=1)
    assert np.array_equal(array(fourth["q"]), path.q[-1])
    u = np.random.default_rng(3).random(40)
    found = ask({**POINT, "op": "transition", "kernel": "nuts", "p0": p, "u": hexes(u), "eps": 0.1, "max_depth": 3})
    kernel = refhmc.NUTS(step_size=0.1, max_treedepth=3, metric=funnel_metric(2))
    went = refhmc.transition(refhmc.models.Funnel(2), kernel, q, momentum=p, uniforms=u)
    assert np.array_equal(array(found["q"]), went.q)


@pytest.mark.sweep
def test_the_oracle_steps_on_the_fisher_metric_and_accepts_terms_that_are_left_out():
    model, q, p = refhmc.models.EightSchools(centered=True), np.full(10, 0.5), np.ones(10)
    asked = {"target": "eight-schools", "args": {"centered": True}, "q": hexes(q), "p": hexes(p), "eps": 0.1, "n": 3}
    for metric, name in ((schools_metric(), described(schools_metric())), (refhmc.metrics.Fisher(), "fisher")):
        path = refhmc.integrate(refhmc.Hamiltonian(model, metric), BlockLeapfrog(), q, p, step_size=0.1, n_steps=3)
        found = Oracle().answer({**asked, "op": "step", "metric": name, "method": "block_leapfrog"})
        assert np.array_equal(array(found["q"]), path.q[-1]), found


@pytest.mark.parametrize(
    ("changed", "more", "code"),
    [
        ({"parents": [[1, 0, 0]], "coefficients": [[[1, 1, 1]]]}, {}, "bad_request"),  # a cycle
        ({"parents": [[0, 0.5, 0]]}, {}, "bad_request"),
        ({"parents": [[0, 0, 3]]}, {}, "bad_request"),
        ({"parents": "funnel"}, {}, "bad_request"),
        ({"constants": [[0, 0]]}, {}, "bad_request"),
        ({"constants": 1}, {}, "bad_request"),
        ({"slopes": [[0, 0, 0]]}, {}, "bad_request"),
        ({}, {"method": "leapfrog"}, "bad_request"),
        ({}, {"method": "yoshida(leapfrog)"}, "bad_request"),
        ({}, {"method": "block_leapfrog", "metric": "softabs(1)"}, "failed"),
    ],
)
def test_invalid_hierarchical_metrics_are_rejected(changed, more, code):
    found = Oracle().answer({**POINT, "metric": {**METRIC, **changed}, "op": "step", "eps": 0.1, "n": 1, **more})
    assert found["error"]["code"] == code, found


# A sampler without refhmc or NumPy: HMC on the metric that the request describes, on the funnel.
CLIENT = """
import json, math, sys

faults = sys.argv[1:]

def value(x):
    if isinstance(x, list):
        return [value(y) for y in x]
    return float.fromhex(x) if isinstance(x, str) and "x" in x else float(x)

class Metric:
    def __init__(self, said):
        self.a, self.c = value(said["constants"]), value(said["coefficients"])
        self.parents, self.d = said["parents"], len(said["constants"][0])
        self.level = [0] * self.d
        for _ in range(self.d):
            for i in range(self.d):
                above = [self.level[j] + 1 for j in self.parents_of(i)]
                self.level[i] = max(above, default=0)

    def parents_of(self, i):
        return [js[i] for p, js in enumerate(self.parents) if any(c[p][i] for c in self.c)]

    def mass_and_slopes(self, i, q):
        M, slopes = 0.0, [0.0] * self.d
        for a, c in zip(self.a, self.c):
            e = math.exp(a[i] + sum(c[p][i] * q[js[i]] for p, js in enumerate(self.parents)))
            M += e
            for p, js in enumerate(self.parents):
                slopes[js[i]] += c[p][i] * e
        return M, slopes

def gradient(q):
    e, s = math.exp(q[0]), sum(x * x for x in q[1:])
    return [-q[0] / 9 + 0.5 * (len(q) - 1) - 0.5 * e * s] + [-e * x for x in q[1:]]

def kick(G, q, p, t):
    p = [x + t * g for x, g in zip(p, gradient(q))]
    for i in range(G.d):
        M, slopes = G.mass_and_slopes(i, q)
        if "log-det" not in faults:
            p = [x - 0.5 * t * s / M for x, s in zip(p, slopes)]
    return p

def flow(G, b, q, p, t):
    new_q, new_p = list(q), list(p)
    for i in range(G.d):
        if G.level[i] == b:
            M, slopes = G.mass_and_slopes(i, q)
            v = p[i] / M
            new_q[i] += t * v
            new_p = [x + 0.5 * t * s * v * v for x, s in zip(new_p, slopes)]
    return new_q, new_p

def step(G, q, p, eps, n):
    up = list(range(max(G.level) + 1))
    down = up[::-1]
    for _ in range(n):
        p = kick(G, q, p, eps / 2)
        for b in down + (down if "one-way" in faults else up):
            q, p = flow(G, b, q, p, eps / 2)
        p = kick(G, q, p, eps / 2)
    return q, p

def energy(G, q, p):
    logs = -q[0] ** 2 / 18 + 0.5 * (G.d - 1) * q[0] - 0.5 * math.exp(q[0]) * sum(x * x for x in q[1:])
    masses = [G.mass_and_slopes(i, q)[0] for i in range(G.d)]
    return -logs + 0.5 * sum(math.log(M) + x * x / M for M, x in zip(masses, p))

def answer(r):
    if r["op"] == "capabilities":
        return {"name": "explicit", "ops": ["step", "momentum", "metric", "transition"], "eps": 0.1, "n": 2}
    G, q = Metric(r["metric"]), value(r["q"])
    masses = [G.mass_and_slopes(i, q)[0] for i in range(G.d)]
    if r["op"] == "metric":
        return {"G": [[M if i == j else 0.0 for j in range(G.d)] for i, M in enumerate(masses)]}
    if r["op"] == "momentum":
        power = -0.5 if "inverse" in faults else 0.5
        return {"p": [M**power * z for M, z in zip(masses, value(r["normals"]))]}
    eps, n = value(r["eps"]), int(r["n"])
    if r["op"] == "step":
        q, p = step(G, q, value(r["p"]), eps, n)
        return {"q": q, "p": p}
    p0 = value(r["p0"])
    end, p = step(G, q, p0, eps, n)
    return {"q": end if value(r["u"])[0] < math.exp(min(0, energy(G, q, p0) - energy(G, end, p))) else q}

for line in sys.stdin:
    r = json.loads(line)
    try:
        found = answer(r)
    except ArithmeticError as error:
        found = {"error": {"code": "failed", "message": str(error)}}
    print(json.dumps({"id": r.get("id"), **found}), flush=True)
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    path = tmp_path_factory.mktemp("explicit") / "client.py"
    path.write_text(CLIENT)
    return [sys.executable, "-I", str(path)]


TWO_LEVELS = described(funnel_metric(2))
THREE_LEVELS = described(random_metric(np.random.default_rng(8), 3, 2, 2))


@pytest.mark.sweep
@pytest.mark.parametrize("metric", [TWO_LEVELS, THREE_LEVELS], ids=["two levels", "three levels"])
def test_a_correct_program_on_a_hierarchical_metric_passes(client, metric):
    what = ["metric", "integrator"]
    outcome = check_program(client, what=what, target="funnel", args={"n": 2}, metric=metric, seconds=60.0)
    assert outcome.status() == 0, str(outcome)
    passed = {row.name for report in outcome.reports for row in report.rows if row.status == "PASS"}
    assert passed >= {"momentum distribution", "symplectic", "reversible", "order", "energy"}


def test_the_case_of_three_levels_has_them():
    assert set(random_metric(np.random.default_rng(8), 3, 2, 2).levels()) == {0, 1, 2}


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("fault", "check", "row"),
    [
        ("log-det", "integrator", "order"),
        ("one-way", "integrator", "reversible"),
        ("inverse", "metric", "momentum distribution"),
    ],
)
def test_faults_of_a_program_on_a_hierarchical_metric_are_found(client, fault, check, row):
    command = [*client, fault]
    outcome = check_program(command, what=[check], target="funnel", args={"n": 2}, metric=TWO_LEVELS, seconds=60.0)
    assert row in {each.name for each in outcome.reports[0].failures}, str(outcome)


@pytest.mark.slow
def test_transitions_of_a_program_on_a_hierarchical_metric_are_in_balance(client):
    options = {"target": "funnel", "args": {"n": 2}, "metric": TWO_LEVELS, "seconds": 240.0}
    right = check_program(client, what=["transition"], **options)
    assert right.status() == 0, str(right)


def test_a_step_of_the_program_equals_that_of_refhmc(client):
    with Program(client, 10.0) as program:
        found = program.ask("step", **{**POINT, "eps": 0.1, "n": 4})
    H = refhmc.Hamiltonian(refhmc.models.Funnel(2), funnel_metric(2))
    path = refhmc.integrate(H, BlockLeapfrog(), POINT["q"], POINT["p"], step_size=0.1, n_steps=4)
    ends = [array(found[key]) for key in ("q", "p")]
    np.testing.assert_allclose(ends, [path.q[-1], path.p[-1]], rtol=0, atol=1e-13)


# ----------------------------------------------------------------------------------------------------------- the orbit


@pytest.mark.sweep
def test_nuts_on_a_hierarchical_metric_is_exactly_invariant_by_default():
    """The explicit integrator is the default; the enumerated probabilities agree to 1e-9."""
    kernel = refhmc.NUTS(step_size=0.2, max_treedepth=2, metric=funnel_metric(2))
    report = rc.orbit(kernel, target=refhmc.models.Funnel(2), most_runs=1000)
    assert report.ok, str(report)
    assert report.row("leap reversible").status == "PASS"
    assert report.row("invariance").number <= 1e-9


@pytest.mark.parametrize(("fault", "status"), [((), 0), (("inverse",), 1)])
def test_the_command_line_accepts_the_description_of_a_metric(client, fault, status):
    parser = argparse.ArgumentParser()
    add_commands(parser.add_subparsers())
    words = ["--cmd", " ".join([*client, *fault]), "--what", "metric", "--target", "funnel", "--args", '{"n": 2}']
    options = parser.parse_args(["check", *words, "--metric", json.dumps(METRIC)])
    assert options.run(options) == status
