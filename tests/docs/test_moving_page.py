"""The mathematics of the page that moves, ``docs/moving``: judged by the kit, as that of any other program. Needs Node."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import refhmc
from refhmc.check import golden_vectors
from refhmc.check.vectors.own_answers import model
from tests.helpers import moving_figures
from tests.helpers.hierarchical_cases import chain_metric, funnel_metric
from tests.helpers.moving_figures import run
from tests.helpers.places import ROOT

MOVING = ROOT / "docs" / "moving"
NODE = shutil.which("node")
SOLVER_TOLERANCE = 1e-13  # golden.js's
FILES = [f"{name}.js" for name in ("arrays", "targets", "metrics", "integrators", "trajectory", "settings")]

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not here: the page's JavaScript is not run")


def test_its_own_tests_pass():
    done = run(NODE, "--test", str(MOVING / "test/golden.test.js"))
    print("\n".join(line for line in done.stdout.splitlines() if "golden vectors" in line or line.startswith("# ")))
    assert done.returncode == 0, done.stdout


def test_golden_vectors():
    questions = "".join(json.dumps(line) + "\n" for line in golden_vectors.lines())
    done = run(NODE, str(MOVING / "golden.js"), given=questions)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) >= 200
    report = golden_vectors.compare(answers, solver_tolerance=SOLVER_TOLERANCE)
    assert report.ok, str(report)
    assert not report.notes
    print(f"{len(answers)} golden vectors, {sum(row.status == 'PASS' for row in report.rows)} rows")


def in_node(script: str) -> dict:
    files = [f"require({json.dumps(str(MOVING / file))});" for file in FILES]
    done = run(NODE, "--eval", "".join(files) + script)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_hierarchical_metric_and_block_leapfrog_are_those_of_refhmc():
    rng, cases, questions = np.random.default_rng(1), {}, []
    for target, metric in [("funnel", funnel_metric(3)), ("funnel", chain_metric(4)), ("banana", chain_metric(2))]:
        a, parents, c = metric.exponents
        named = {
            "metric": "hierarchical",
            "constants": a.tolist(),
            "parents": parents.tolist(),
            "coefficients": c.tolist(),
        }
        H = refhmc.Hamiltonian(model(target), metric)
        for _ in range(5):
            q, p = rng.normal(size=(2, a.shape[1]))
            path = refhmc.integrate(H, refhmc.integrators.BlockLeapfrog(), q, p, step_size=0.1, n_steps=7)
            steps = {"integrator": "block-leapfrog", "eps": "0.1", "n": 7}
            for op, args, right in [
                ("metric", {}, {"metric": H.mass(q), "log_det": np.linalg.slogdet(H.mass(q))[1]}),
                ("dH", {}, {"dq": H.grad_q(q, p), "dp": H.grad_p(q, p)}),
                ("step", steps, {"q": path.q[-1], "p": path.p[-1], "energy_error": path.energy[-1] - path.energy[0]}),
            ]:
                name = f"{op}/{len(cases)}"
                cases[name] = right
                question = {"id": name, "op": op, "target": target, "q": list(map(str, q)), "p": list(map(str, p))}
                questions.append(json.dumps({**question, "args": {**named, **args}}) + "\n")
    done = run(NODE, str(MOVING / "golden.js"), given="".join(questions))
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == list(cases)
    for answer in answers:
        for field, value in cases[answer["id"]].items():
            np.testing.assert_allclose(answer["out"][field], value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("target", ["funnel", "banana"])
def test_hierarchical_metric_of_the_page_is_its_gamma_regression(target):
    stored = in_node(f"console.log(JSON.stringify(refhmc.settings.TARGETS.{target}.hierarchical))")
    constants, _, coefficients = moving_figures.hierarchical(target)
    np.testing.assert_allclose(stored["a"], constants[0], atol=1e-8)
    np.testing.assert_allclose(stored["c"], coefficients[0, 0], atol=1e-8)


def seen_on_the_page(states: str) -> list[dict]:
    """What the page finds in the states of a JavaScript expression, from the target's start unless they have q and p."""
    return in_node(f"""
        const {{ settings, trajectory: t }} = refhmc;
        console.log(JSON.stringify(({states}).map((given) => {{
            const setting = settings.TARGETS[given.target], curved = settings.isCurved(given.metric) && setting.curved;
            const state = {{ ...settings.DEFAULTS, ...(curved || setting.start), ...given }}, {{ q, p, eps, n }} = state;
            const {{ H, integrator }} = settings.made(state), there = t.follow(H, integrator, q, p, eps, n);
            const {{ volumes, back, preserved, returns }} = t.properties(H, integrator, there, eps);
            const E = there.energies, figures = [E.at(-1) - E[0], t.largestEnergyError(there), volumes.at(-1), back.distance];
            const end = there.states.at(-1), usable = there.complete && [...end.q, ...end.p].every(Number.isFinite);
            return {{ state, figures, preserved, returns, usable, known: volumes.length === n + 1 }};
        }})))""")


def each_combination(eps: float, n: int) -> str:
    """All combinations that the page offers, as an expression for `seen_on_the_page`."""
    return f"""Object.entries(settings.TARGETS).flatMap(([target, {{ metrics, integrators }}]) =>
        metrics.flatMap((metric) => integrators
            .filter((integrator) => integrator !== "block-leapfrog" || metric === "hierarchical")
            .map((integrator) => ({{ target, metric, integrator, eps: {eps}, n: {n} }}))))"""


def is_correct(target: str, metric: str, integrator: str) -> bool:
    """Whether a step on (q, p) is symplectic (or, with jumps, preserves volume) and reversible, by the theory."""
    constant = target == "gaussian" or metric in ("identity", "diagonal", "dense")
    return integrator != "explicit-tao" and (integrator != "leapfrog" or constant)


# Steps whose Jacobian has determinant 1, though they are not reversible: on a diagonal metric that depends on q_1 only through
# the mass of q_2, each of the leapfrog's three parts moves one variable by a function of the others.
ONLY_VOLUME = {("banana", "hierarchical"), ("funnel", "hierarchical"), ("funnel", "fisher")}


@pytest.mark.parametrize(("eps", "n"), [(0.1, 40), (0.05, 40), (0.25, 40), (0.02, 200)])
def test_each_verdict_is_what_the_integrator_guarantees(eps, n):
    found = seen_on_the_page(each_combination(eps, n))
    assert len(found) == 109
    failed = 0
    for one in found:
        state = one["state"]
        name = state["target"], state["metric"], state["integrator"]
        if not one["usable"]:  # a step without a solution, or an overflow
            assert (one["preserved"], one["returns"]) == (None, None), name
            failed += 1
        elif is_correct(*name):
            assert (one["preserved"], one["returns"]) == (True, True), name
        elif eps >= 0.05:
            assert one["returns"] is False, name
            if name[2] == "leapfrog" and one["known"]:
                assert one["preserved"] is (name[:2] in ONLY_VOLUME), name
    assert failed <= (30 if eps == 0.25 else 2)


@pytest.mark.parametrize("target", ["gaussian", "banana", "funnel", "staircase"])
def test_figures_of_each_combination_are_those_of_refhmc(target):
    for one in seen_on_the_page(f"({each_combination(0.05, 10)}).filter((state) => state.target === '{target}')"):
        right = moving_figures.by_refhmc(one["state"])
        np.testing.assert_allclose(one["figures"], right, rtol=1e-5, atol=1e-5, err_msg=str(one["state"]))


def test_growth_is_not_taken_for_an_error():
    """The leapfrog above its largest stable step: rounding errors grow with the trajectory, and in the end it overflows."""
    state = {"target": "gaussian", "metric": "identity", "integrator": "leapfrog", "eps": 1.2}
    grown, overflowed = seen_on_the_page(json.dumps([{**state, "n": 40}, {**state, "n": 500, "eps": 4}]))
    assert grown["figures"][3] > 1
    assert (grown["preserved"], grown["returns"]) == (True, True)
    assert not overflowed["usable"]
    assert (overflowed["preserved"], overflowed["returns"]) == (None, None)


def test_a_loose_solver_is_seen():
    state = {"target": "banana", "metric": "fisher", "integrator": "implicit-midpoint", "eps": 0.15, "n": 28}
    exact, loose = seen_on_the_page(json.dumps([state, {**state, "tolerance": 0.1}]))
    assert (exact["preserved"], exact["returns"]) == (True, True)
    assert (loose["preserved"], loose["returns"]) == (False, False)


def checked(*words: str) -> subprocess.CompletedProcess:
    client = " ".join(["node", "docs/moving/client.js", *words])
    command = (sys.executable, "-m", "refhmc", "check", "--json", "--cmd", client, "--what", "model,metric,integrator")
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", timeout=300)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("banana fisher implicit-midpoint", 0),
        ("banana identity leapfrog", 0),
        ("funnel softabs generalized-leapfrog", 0),
        ("funnel fisher block-leapfrog", 0),
        ("banana identity leapfrog --bug half-drift", 1),
        ("banana fisher leapfrog", 1),
    ],
)
def test_the_kit_examines_it(words, status):
    done = checked(*words.split())
    assert done.returncode == status, done.stdout + done.stderr
    if words == "banana fisher leapfrog":  # a curved metric
        reports = [json.loads(line) for line in done.stdout.splitlines()]
        failed = {row["name"] for report in reports for row in report["rows"] if row["status"] == "FAIL"}
        assert {"reversible", "symplectic", "volume"} <= failed
