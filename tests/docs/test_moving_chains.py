"""The chains of the interactive page, ``docs/moving/chain.js``: its transitions compared with those of refhmc. Needs Node."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from scipy import integrate, stats

import refhmc
from tests.helpers import moving_figures
from tests.helpers.moving_figures import run
from tests.helpers.places import ROOT

MOVING = ROOT / "docs" / "moving"
NODE = shutil.which("node")
FILES = (
    "arrays",
    "targets",
    "metrics",
    "integrators",
    "trajectory",
    "settings",
    "chain",
    "address",
    "picture",
    "chain_view",
)
UNIFORMS = 400

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed")


def in_node(script: str, given: object = None) -> object:
    """The value of a JavaScript expression in which ``given`` is the argument."""
    files = "".join(f"require({json.dumps(str(MOVING / f'{file}.js'))});" for file in FILES)
    read = 'const given = JSON.parse(require("node:fs").readFileSync(0, "utf8"));'
    done = run(NODE, "--eval", f"{files}{read}console.log(JSON.stringify({script}))", given=json.dumps(given))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


TRANSITIONS = """given.map(({ state, q, p, u }) => {
    const { H, integrator } = refhmc.settings.made({ ...refhmc.settings.DEFAULTS, ...state });
    let used = 0;
    return { ...refhmc.chain[state.kernel](H, integrator, { q, p }, state, () => u[used++]), used };
})"""


def cases(target: str, metric: str, **settings: object) -> list[dict]:
    rng, found = np.random.default_rng(48), []
    for _ in range(12):
        q, p = rng.normal(size=(2, 2)) * (0.7 if target == "banana" else 1.0)
        u = rng.random(UNIFORMS)
        state = {"target": target, "metric": metric, "integrator": "leapfrog", **settings}
        found.append({"state": state, "q": q.tolist(), "p": p.tolist(), "u": u.tolist()})
    return found


STAGES = f"{TRANSITIONS}.map(refhmc.chainView.stages)"


@pytest.mark.parametrize(
    ("metric", "settings", "ends"),
    [
        ("identity", {"kernel": "hmc", "eps": 0.6, "n": 8}, {"is accepted", "is rejected"}),
        ("fisher", {"kernel": "hmc", "eps": 1.5, "n": 8, "integrator": "implicit-midpoint"}, {"has no solution"}),
        ("identity", {"kernel": "nuts", "eps": 0.2, "maxDepth": 6}, {"ends without them", "The draw is the state"}),
    ],
)
def test_each_stage_of_a_transition_has_one_sentence(metric, settings, ends):
    stages = in_node(STAGES, cases("banana", metric, **settings))
    seen = {sentence for each in stages for sentence in each}
    assert [sentence for sentence in seen if not sentence.endswith(".") or ". " in sentence] == []
    assert [words for words in ends if not any(words in sentence for sentence in seen)] == []


def test_each_stage_of_the_random_walk_has_one_sentence():
    """On the normal distribution, where (1, 0) has exp(-1/2) = 0.607 of the density at 0."""
    walk = "refhmc.chain.randomWalk(refhmc.targets.Gaussian([0, 0], [[1, 0], [0, 1]]), [0, 0], [1, 0], () => u)"
    for u, end in [
        (0.6, "is accepted, and the chain moves there."),
        (0.61, "is rejected, and the state counts once more."),
    ]:
        first, last = in_node(f"((u) => refhmc.chainView.stages({walk}))({u})")
        assert first == "The random walk proposes a point around the state, without regard to the density."
        assert last == f"The proposal, with an acceptance probability of 61 %, {end}"


@pytest.mark.parametrize(
    ("target", "metric", "eps"),
    [
        ("gaussian", "identity", 0.3),
        ("gaussian", "dense", 0.2),
        ("banana", "diagonal", 0.1),
        ("funnel", "identity", 0.2),
    ],
)
def test_transition_of_nuts_is_that_of_refhmc(target, metric, eps):
    of = {
        "identity": refhmc.metrics.Identity(),
        "dense": refhmc.metrics.Dense(moving_figures.COVARIANCE),
        "diagonal": refhmc.metrics.Diagonal([1.5, 1]),
    }[metric]
    kernel = refhmc.NUTS(step_size=eps, max_treedepth=6, metric=of, integrator="leapfrog")
    asked = cases(target, metric, kernel="nuts", eps=eps, maxDepth=6)
    ended = set()
    for case, found in zip(asked, in_node(TRANSITIONS, asked), strict=True):
        right = refhmc.transition(
            moving_figures.model(target), kernel, case["q"], momentum=case["p"], uniforms=np.array(case["u"])
        )
        np.testing.assert_allclose(found["q"], right.q, rtol=1e-9, atol=1e-9)
        assert found["used"] == right.uniforms_used
        assert found["steps"] == right.stats["n_steps"]
        assert found["chosen"]["time"] == right.stats["index_in_trajectory"]
        assert sum(half["kept"] for half in found["doublings"]) == right.stats["tree_depth"]
        assert found["probability"] == pytest.approx(right.stats["acceptance_rate"], rel=1e-9)
        ended.add((found["doublings"][-1]["ended"], found["doublings"][-1]["kept"]))
        for half in found["doublings"]:
            times = [state["time"] for state in half["states"]]
            assert (
                half["turned"] is None
                or half["kept"]
                or min(times) <= half["turned"][0] < half["turned"][1] <= max(times)
            )
    assert ("turned", True) in ended or ("turned", False) in ended


@pytest.mark.parametrize(
    ("target", "metric", "integrator"),
    [
        ("gaussian", "identity", "leapfrog"),
        ("banana", "fisher", "implicit-midpoint"),
        ("funnel", "fisher", "block-leapfrog"),
    ],
)
def test_transition_of_hmc_is_that_of_refhmc(target, metric, integrator):
    chosen = {
        "leapfrog": refhmc.integrators.Leapfrog,
        "block-leapfrog": refhmc.integrators.BlockLeapfrog,
        "implicit-midpoint": lambda: refhmc.integrators.ImplicitMidpoint(
            tolerance=1e-12, max_iterations=1000, solver="fixed point", reversibility_check=False
        ),
    }[integrator]()
    eps, n = (1.0, 9) if target == "gaussian" else (0.25, 9)
    kernel = refhmc.HMC(step_size=eps, n_steps=n, metric=metric, integrator=chosen)
    asked = cases(
        target, metric, kernel="hmc", integrator=integrator, eps=eps, n=n, tolerance=1e-12, maxIterations=1000
    )
    accepted = set()
    for case, found in zip(asked, in_node(TRANSITIONS, asked), strict=True):
        right = refhmc.transition(
            moving_figures.model(target), kernel, case["q"], momentum=case["p"], uniforms=np.array(case["u"][:50])
        )
        np.testing.assert_allclose(found["q"], right.q, rtol=1e-8, atol=1e-8)
        assert found["used"] == right.uniforms_used == 1
        assert found["accepted"] == (right.outcome == "accepted")
        assert found["probability"] == pytest.approx(right.probabilities[0], abs=1e-8)
        accepted.add(found["accepted"])
    assert target != "gaussian" or accepted == {True, False}


def test_implicit_step_without_a_solution_is_a_rejection():
    state = {
        "target": "banana",
        "metric": "fisher",
        "integrator": "implicit-midpoint",
        "kernel": "hmc",
        "maxIterations": 2,
    }
    (found,) = in_node(TRANSITIONS, [{"state": {**state, "eps": 0.2, "n": 5}, "q": [0, 1], "p": [1, 2], "u": [0.0]}])
    assert (found["accepted"], found["probability"], found["q"], found["used"]) == (False, 0, [0, 1], 1)


@pytest.mark.parametrize("target", ["gaussian", "banana", "funnel", "donut", "modes", "staircase"])
def test_acceptance_of_the_random_walk_has_detailed_balance(target):
    """pi(a) P(a to b) = pi(b) P(b to a) for symmetric proposals, in both directions and also at zero density."""
    pairs = np.random.default_rng(3).normal(size=(40, 2, 2)) * 1.5
    found = in_node(
        f"""given.map(([a, b]) => {{
            const target = refhmc.settings.TARGETS.{target}.make();
            const go = (x, y, u) => refhmc.chain.randomWalk(target, x, y, () => u);
            const there = go(a, b, 0.5), back = go(b, a, 0.5);
            return {{ L: [a, b].map((x) => Math.exp(target.logDensity(x))), P: [there.probability, back.probability],
                moved: [there, back].map((t, k) => t.accepted ? t.q === [b, a][k] : t.q === [a, b][k]),
                right: [there, back].every((t) => t.accepted === 0.5 < t.probability) }};
        }})""",
        pairs.tolist(),
    )
    for one in found:
        (a, b), (there, back) = one["L"], one["P"]
        if a > 0:
            assert a * there == pytest.approx(b * back, rel=1e-12)
            assert max(there, back) == 1 or b == 0
        assert one["moved"] == [True, True]


def density(target: str, mp: object) -> object:
    if target == "donut":
        R, s = mp.mpf("2.5"), mp.mpf("0.35")
        return lambda x, y: -((x * x + y * y - R * R) ** 2) / (8 * R * R * s * s)
    m, s = (mp.mpf("1.8"), mp.mpf("0.9")), mp.mpf("0.75")

    def two_modes(x, y):
        squares = [(x - sign * m[0]) ** 2 + (y - sign * m[1]) ** 2 for sign in (1, -1)]
        return mp.log(sum(mp.exp(-square / (2 * s * s)) for square in squares))

    return two_modes


@pytest.mark.parametrize("target", ["donut", "modes"])
def test_derivatives_of_the_new_targets_are_those_of_the_density(target):
    mp = pytest.importorskip("mpmath").mp
    points = np.random.default_rng(5).normal(size=(8, 2)) * 2
    M = [[0.3, -1.2], [0.7, 2.1]]
    found = in_node(
        f"""given.points.map((q) => {{
            const t = refhmc.settings.TARGETS.{target}.make();
            return [t.logDensity(q), t.gradient(q), t.hessian(q), t.trace(q, given.M)];
        }})""",
        {"points": points.tolist(), "M": M},
    )
    with mp.workdps(50):
        L = density(target, mp)
        import mpmath

        def partial(q, *along):
            return float(mpmath.diff(L, tuple(map(mp.mpf, q)), (along.count(0), along.count(1))))

        for q, (value, gradient, hessian, trace) in zip(points, found, strict=True):
            assert value == pytest.approx(float(L(*map(mp.mpf, q))), rel=1e-12, abs=1e-12)
            size = max(1, abs(partial(q, 0, 0)), abs(partial(q, 0, 0, 0)))
            np.testing.assert_allclose(gradient, [partial(q, i) for i in (0, 1)], rtol=1e-10, atol=1e-11 * size)
            right = [[partial(q, i, j) for j in (0, 1)] for i in (0, 1)]
            np.testing.assert_allclose(hessian, right, rtol=1e-10, atol=1e-11 * size)
            third = [sum(M[i][j] * partial(q, i, j, k) for i in (0, 1) for j in (0, 1)) for k in (0, 1)]
            np.testing.assert_allclose(trace, third, rtol=1e-10, atol=1e-10 * size)


def test_margins_are_those_of_the_closed_forms():
    found = in_node("""["gaussian", "modes", "staircase", "funnel"].map((name) => {
        const { box, window, make } = refhmc.settings.TARGETS[name];
        return name === "funnel" ? refhmc.chain.funnelMargins(window) : refhmc.chain.margins(make(), box);
    })""")
    normal = stats.norm.pdf
    w = np.exp([0, -0.75, 0.5, -1.5])
    staircase = sum(
        w_i * normal(x, m, s)
        for w_i, m, s, x in zip(w, [0, 1, -0.5, 2], [1, 0.5, 1.5, 0.75], [np.array(found[2][0]["x"])] * 4, strict=True)
    )
    n = np.array(found[2][1]["x"])
    right = [
        [normal(np.array(found[0][0]["x"])), normal(np.array(found[0][1]["x"]), 0, 1.5)],
        [
            (normal(np.array(one["x"]), m, 0.75) + normal(np.array(one["x"]), -m, 0.75)) / 2
            for one, m in zip(found[1], (1.8, 0.9), strict=True)
        ],
        [staircase / w.sum(), np.where((n > 0) & (n < 4), w[np.clip(n.astype(int), 0, 3)] / w.sum(), 0)],
        [
            normal(np.array(found[3][0]["x"]), 0, 3),
            [
                integrate.quad(lambda v, x=x: normal(v, 0, 3) * normal(x, 0, np.exp(-v / 2)), -18, 18, limit=400)[0]
                for x in found[3][1]["x"][::20]
            ],
        ],
    ]
    found[3][1]["density"] = found[3][1]["density"][::20]
    for margins, known in zip(found, right, strict=True):
        for one, values in zip(margins, known, strict=True):
            np.testing.assert_allclose(one["density"], values, rtol=1e-6, atol=1e-6)


def test_momentum_has_the_covariance_of_the_metric():
    """p = C z with C C' = G, for the unit vectors as normals."""
    states = [
        {"target": t, "metric": m, "integrator": "leapfrog"}
        for t, m in (("banana", "fisher"), ("gaussian", "dense"), ("funnel", "softabs"))
    ]
    found = in_node(
        """given.map((state) => {
            const { H } = refhmc.settings.made({ ...refhmc.settings.DEFAULTS, ...state }), q = [0.4, -0.8];
            const along = (z) => { let k = 0; return refhmc.chain.momentum(H, q, { normal: () => z[k++] }); };
            return [[along([1, 0]), along([0, 1])], H.at(q).mass()];
        })""",
        states,
    )
    for columns, mass in found:
        np.testing.assert_allclose(np.transpose(columns) @ columns, mass, rtol=1e-12)


def test_chain_with_the_same_seed_is_the_same_and_another_seed_another():
    chain = """((seed) => {
        const { START } = refhmc.settings;
        const state = { ...START, target: "gaussian", metric: "identity", integrator: "leapfrog", kernel: "nuts" };
        const made = refhmc.settings.made(state), random = refhmc.chain.Random(seed);
        let q = [0, 0];
        for (let k = 0; k < 20; k++) q = refhmc.chain.transition(made, state, q, random).q;
        return q;
    })"""
    a, b, c = in_node(f"[1, 1, 2].map({chain})")
    assert a == b != c


def test_chain_of_each_kernel_has_the_moments_of_the_gaussian():
    """20,000 draws with a fixed seed. Tolerances are those of 3,600 independent draws at six standard errors."""
    found = in_node("""["rwm", "hmc", "nuts"].map((kernel) => {
        const map = { target: "gaussian", metric: "identity", integrator: "leapfrog", eps: 0.5, n: 4 };
        const state = { ...refhmc.settings.START, ...map, kernel, width: 1.5 };
        const made = refhmc.settings.made(state), random = refhmc.chain.Random(7), draws = [];
        let q = [0, 0];
        for (let k = 0; k < 20000; k++) draws.push(q = refhmc.chain.transition(made, state, q, random).q);
        return draws;
    })""")
    for draws in np.array(found):
        assert np.abs(draws.mean(axis=0) / [1, 1.5]).max() < 0.1
        np.testing.assert_allclose(np.cov(draws.T), moving_figures.COVARIANCE, rtol=0.2)


def test_address_gives_the_state_back_and_ignores_what_is_not_valid():
    same, bad = in_node("""[
        [{}, { view: "chain", target: "funnel", eps: 1e-3, q: [-1.25, 3e-7], seed: 77, pace: 0.5 }]
            .map((changes) => ({ ...refhmc.settings.START, ...changes }))
            .every((state) => require("node:util").isDeepStrictEqual(refhmc.address.read(refhmc.address.write(state)), state)),
        refhmc.address.read("#target=nowhere&eps=-1&n=2.5&q=1&p=1,x&seed=&pace=7&alpha=20&kernel=nuts&evil=%3Cscript%3E&tolerance=NaN"),
    ]""")
    assert same
    assert bad == {"alpha": 20, "kernel": "nuts"}
