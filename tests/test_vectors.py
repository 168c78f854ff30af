"""The golden vectors: refhmc agrees with all of them, they can be made anew, and wrong results are found out."""

from __future__ import annotations

import argparse
import collections
import functools
import json
import pathlib
import re

import numpy as np
import pytest

import refhmc
from refhmc import adaptation
from refhmc.check import golden_vectors as gv

# The least tolerance of refhmc's solver; the vectors' gain turns it into an error of the step.
SOLVER_TOLERANCE = 1e-14
FOLDER = pathlib.Path(gv.__file__).resolve().parents[1] / "vectors"
METRICS = {
    "identity": "Identity",
    "diagonal": "Diagonal",
    "dense": "Dense",
    "fisher": "Fisher",
    "softabs": "SoftAbs",
    "diagonal-softabs": "DiagonalSoftAbs",
    "outer-product-softabs": "OuterProductSoftAbs",
    "diagonal-outer-product-softabs": "DiagonalOuterProductSoftAbs",
}
INTEGRATORS = {
    "leapfrog": "Leapfrog",
    "implicit-midpoint": "ImplicitMidpoint",
    "generalized-leapfrog": "GeneralizedLeapfrog",
    "explicit-tao": "ExplicitTao",
    "projected-tao": "ProjectedTao",
}


# ------------------------------------------------------------------------------------------ refhmc's own answers


@functools.cache
def model(name):
    m, data = refhmc.models, gv.targets()[name].data
    makers = {
        "gaussian": lambda: m.Gaussian(data["mean"], data["covariance"]),
        "banana": lambda: m.Banana(data["y"], data["sigma_y"], data["sigma_theta"]),
        "funnel": lambda: m.Funnel(3),
        "logistic": lambda: m.LogisticRegression(data["X"], data["y"], data["prior_scale"]),
        "eight-schools": lambda: m.EightSchools(y=data["y"], sigma=data["sigma"]),
        "eight-schools-centred": lambda: m.EightSchools(True, y=data["y"], sigma=data["sigma"]),
        "linear-regression": lambda: m.LinearRegression(data["X"], data["y"]),
        "ar": lambda: m.AR(data["y"], 2),
        "garch": lambda: m.GARCH(data["y"], data["sigma1"]),
        "gaussian-mixture": lambda: m.GaussianMixture(data["y"]),
        "gaussian-process": lambda: m.GaussianProcessRegression(data["x"], data["y"]),
    }
    return makers[name]()


def metric(args):
    options = {key: args[key] for key in ("alpha", "as_published") if key in args}
    if "inverse_mass" in args:
        options["variances" if args["metric"] == "diagonal" else "covariance"] = args["inverse_mass"]
    return getattr(refhmc.metrics, METRICS[args["metric"]])(**options)


def integrator(args):
    options = {"omega": args["omega"]} if "omega" in args else {}
    make = getattr(refhmc.integrators, INTEGRATORS[args["integrator"]])
    if make.implicit:
        options |= {"tolerance": SOLVER_TOLERANCE, "max_iterations": 1000}
    base = make(**options)
    compositions = {"yoshida": refhmc.integrators.Yoshida, "suzuki": refhmc.integrators.Suzuki}
    return compositions[args["composition"]](base) if "composition" in args else base


def derivative(name):
    return lambda r: {r.op: getattr(model(r.target), name)(r.inputs["q"])}


def logp(r):
    L = model(r.target).log_density
    return {"difference": L(r.inputs["q"]) - L(r.inputs["reference"])}


def mass(r):
    G = refhmc.Hamiltonian(model(r.target), metric(r.args)).mass(r.inputs["q"])
    return {"metric": G, "log_det": np.linalg.slogdet(G).logabsdet}


def force(r):
    H = refhmc.Hamiltonian(model(r.target), metric(r.args))
    return {"dq": H.grad_q(r.inputs["q"], r.inputs["p"]), "dp": H.grad_p(r.inputs["q"], r.inputs["p"])}


def step(r):
    H, a = refhmc.Hamiltonian(model(r.target), metric(r.args)), r.args
    t = refhmc.integrate(H, integrator(a), r.inputs["q"], r.inputs["p"], step_size=a["eps"], n_steps=a["n"])
    assert t.converged.all(), r.id
    return {"q": t.q[-1], "p": t.p[-1], "energy_error": t.energy[-1] - t.energy[0]}


def transition(r):
    a = r.args
    if a["kernel"] == "hmc":
        kernel = refhmc.HMC(step_size=a["eps"], n_steps=a["n"], metric=metric(a), integrator=integrator(a))
    else:
        kernel = refhmc.NUTS(step_size=a["eps"], max_treedepth=a["max_depth"], metric=metric(a))
    t = refhmc.transition(model(r.target), kernel, r.inputs["q"], momentum=r.inputs["p"], uniforms=r.inputs["uniforms"])
    out = {"q": t.q, "acceptance_rate": t.stats["acceptance_rate"], "uniforms_used": t.uniforms_used}
    if a["kernel"] == "hmc":
        out["accepted"] = bool(t.stats["is_accepted"])
        return out  # the energy error of a rejected proposal is not kept
    return out | {key: t.stats[key] for key in ("energy_error", "tree_depth", "n_steps", "index_in_trajectory")}


def dual_averaging(r):
    state, out = np.zeros(adaptation.N_DUAL), {"step_size": [], "averaged": []}
    adaptation.restart_dual_averaging(state, r.args["initial"])
    for a in r.inputs["acceptances"]:
        adaptation.update_dual_averaging(state, a, r.args["target_accept"])
        out["step_size"].append(np.exp(state[adaptation.LOG_STEP]))
        out["averaged"].append(np.exp(state[adaptation.LOG_STEP_BAR]))
    return out


def warmup_schedule(r):
    return {"phases": [list(phase) for phase in adaptation.warmup_schedule(r.args["tune"])]}


def welford(r):
    draws = r.inputs["draws"]
    n, d = draws.shape
    mean, scatter = np.zeros(d), np.zeros((d, d))
    for k, q in enumerate(draws, 1):
        adaptation.update_welford(mean, scatter, q, k)
    vecs, mats = np.zeros((2, d)), np.zeros((2, d, d))
    adaptation.learn_metric(scatter, n, vecs, mats)
    return {"mean": mean, "covariance": scatter / (n - 1), "regularised": mats[0]}


ANSWERS = {
    "logp": logp,
    "grad": derivative("gradient"),
    "hess": derivative("hessian"),
    "third": derivative("third_derivative"),
    "fisher": derivative("fisher"),
    "fisher_derivative": derivative("fisher_derivative"),
    "metric": mass,
    "dH": force,
    "step": step,
    "transition": transition,
    "dual_averaging": dual_averaging,
    "warmup_schedule": warmup_schedule,
    "welford": welford,
}


def as_json(value):
    return value.tolist() if hasattr(value, "tolist") else value


def answered(records):
    """Lines of a results file, as another program would write them."""
    for r in records:
        out = {key: as_json(np.asarray(value)) for key, value in ANSWERS[r.op](r).items() if r.op != "warmup_schedule"}
        yield json.dumps({"id": r.id, "out": out or ANSWERS[r.op](r)})


def own_results(op):
    stretched = ("stretched",) if op == "warmup_schedule" else (None,)
    return answered(r for target in stretched for r in gv.records(op, target))


@pytest.mark.parametrize("op", list(ANSWERS))
def test_refhmc_agrees_with_every_record(op):
    report = gv.compare(own_results(op), op=op, solver_tolerance=SOLVER_TOLERANCE)
    report.assert_ok()
    unanswered = {row.name for row in report.not_run}
    # Stan's second window of 1 to 49 draws, where refhmc has one, is the only thing not asked of it.
    assert unanswered == ({"warmup_schedule/stan"} if op == "warmup_schedule" else set())


def test_every_operation_has_records():
    assert {r["op"] for r in gv.lines()} == set(ANSWERS)


def test_windows_are_stans_except_from_151_to_199():
    stan = {r.args["tune"]: r.out["phases"] for r in gv.records("warmup_schedule", "stan")}
    stretched = {r.args["tune"]: r.out["phases"] for r in gv.records("warmup_schedule", "stretched")}
    assert {n for n in stan if stan[n] != stretched[n]} == set(range(151, 200))


# -------------------------------------------------------------------------------------------------- the files


def test_the_files_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 2_000_000


def test_every_file_begins_with_version_generator_and_licence():
    for path in FOLDER.glob("*.jsonl"):
        first = json.loads(path.open().readline())
        assert first["v"] == 1
        assert first["header"]["licence"] == "BSD-3-Clause"
        assert first["header"]["file"] == path.stem


def test_ids_are_unique_and_say_what_they_are():
    rows = list(gv.lines())
    assert len({r["id"] for r in rows}) == len(rows)
    assert all(re.fullmatch(rf"{r['op']}/{r['target']}/\d{{4}}", r["id"]) for r in rows)
    known = set(gv.targets()) | {"stan", "stretched"}
    assert {r["target"] for r in rows} <= known


def strings(value):
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in parts for text in strings(part)]


def test_inputs_are_exact_doubles():
    for r in gv.lines():
        for text in strings([r["args"], *(r[key] for key in r if key not in gv.NOT_INPUTS)]):
            if "0x" in text:
                value = float.fromhex(text)
                assert np.isfinite(value)
                assert float.fromhex(value.hex()) == value


def test_answers_have_34_digits():
    for r in gv.lines():
        for text in strings(r["out"]):
            if text != "0" and text not in ("fast", "slow"):
                digits = re.sub(r"e.*$", "", text).replace(".", "").lstrip("-0")
                assert len(digits) >= 34, (r["id"], text)


def test_tolerances_are_those_of_rounding():
    """Well below the answer itself, except where the metric nearly vanishes (large alpha); never zero."""
    for r in gv.records():
        for key, tol in r.tol.items():
            size = max(1.0, np.max(np.abs(r.out[key]), initial=0.0))
            assert 0 < tol < 1e-2 * size, (r.id, key)
        gentle = r.args.get("alpha", 1.0) <= 1.0 and r.op in ("grad", "metric", "step")
        if gentle:
            assert max(tol / max(1.0, np.max(np.abs(r.out[key]))) for key, tol in r.tol.items()) < 1e-8, r.id


# A twentieth of the records, chosen anew with each version of the library; of the slow ones a few.
VERSION_SEED = int.from_bytes(refhmc.__version__.encode(), "big")


def test_a_twentieth_of_the_records_comes_out_again():
    pytest.importorskip("mpmath")
    from validation.vectors import files, records

    stored = [r for r in gv.lines() if r["op"] != "warmup_schedule"]
    for r in files.sample(stored, 0.05, VERSION_SEED, costly=2):
        assert records.agrees(r), r["id"]


@pytest.mark.slow
def test_a_fiftieth_comes_out_again_at_90_digits():
    pytest.importorskip("mpmath")
    from validation.vectors import files, records

    for r in files.sample(list(gv.lines()), 0.02, VERSION_SEED):
        assert records.agrees(r, 90), r["id"]


# ------------------------------------------------------------------------------------------------- what is wrong


def spoilt(op, spoil, target="funnel"):
    """A report on right answers, one of which ``spoil`` changed."""
    rows = [{"id": r.id, "out": {key: as_json(value) for key, value in r.out.items()}} for r in gv.records(op, target)]
    spoil(rows[2])
    return gv.compare([json.dumps(row) for row in rows], op=op), rows[2]["id"]


def test_right_results_pass():
    report, _ = spoilt("grad", lambda row: None)
    assert report.ok
    assert report.row("grad/funnel").status == "PASS"
    assert report.row("grad/banana").status == "NOT RUN"


def test_a_wrong_number_fails_in_its_row_and_names_the_record():
    def spoil(row):
        row["out"]["grad"][1] *= 1 + 1e-9

    report, name = spoilt("grad", spoil)
    row = report.row("grad/funnel")
    assert row.status == "FAIL"
    assert row.case == name
    assert [r.name for r in report.failures] == ["grad/funnel"]


@pytest.mark.parametrize("value", [[1.0], "abc", [[1.0, 2.0, 3.0, 4.0]], None, [1.0, float("nan"), 0.0, 0.0], {}])
def test_answers_of_another_form_fail_without_a_traceback(value):
    report, name = spoilt("grad", lambda row: row["out"].update(grad=value))
    assert report.row("grad/funnel").status == "FAIL"
    assert report.row("grad/funnel").case == name


def test_a_wrong_count_fails():
    report, name = spoilt("transition", lambda row: row["out"].update(uniforms_used=77))
    assert report.row("transition/funnel").case == name


def test_single_precision_is_judged_as_such():
    def lower(row):
        return {"id": row.id, "out": {"grad": [float(np.float32(x)) for x in row.out["grad"]]}}

    rows = [lower(r) for r in gv.records("grad", "logistic")]
    assert gv.compare(rows, op="grad", target="logistic", precision="float32").ok
    strict = gv.compare(rows, op="grad", target="logistic")
    assert strict.failures
    assert any("single precision" in text for text in strict.diagnosis)


def test_numbers_may_be_hex_or_decimal_and_lines_may_be_noise():
    r = next(gv.records("grad", "funnel"))
    answers = [
        "starting up ...",
        "",
        json.dumps({"id": r.id, "grad": [float(x).hex() for x in r.out["grad"]]}),
        json.dumps({"id": "grad/funnel/0002", "error": {"code": "not_supported"}}),
        json.dumps({"id": "grad/funnel/9999", "out": {"grad": ["1"]}}),
    ]
    report = gv.compare(answers, op="grad", target="funnel")
    assert report.ok
    assert len(report.notes) == 3


def test_closest_decisions_are_left_out_in_single_precision():
    rows = [{"id": r.id, "out": {}} for r in gv.records("transition", "funnel")]
    assert gv.compare(rows, op="transition", target="funnel", precision="float32").not_run


# ------------------------------------------------------------------------------------------------- command line


def command(*arguments):
    parser = argparse.ArgumentParser()
    gv.add_vectors_command(parser.add_subparsers())
    options = parser.parse_args(["vectors", *arguments])
    return options.run(options)


def test_the_command_lists_and_filters(capsys):
    assert command("--op", "grad", "--target", "funnel", "--list") == 0
    names = capsys.readouterr().out.split()
    assert names
    assert all(name.startswith("grad/funnel/") for name in names)


def test_the_command_exports_questions_without_answers(capsys):
    assert command("export", "--op", "step", "--target", "banana", "--questions") == 0
    rows = [json.loads(text) for text in capsys.readouterr().out.splitlines()]
    assert rows
    assert not any("out" in row or "tol" in row for row in rows)


def test_the_commands_exit_status_says_what_was_found(tmp_path, capsys):
    right, wrong, empty = (tmp_path / name for name in ("right", "wrong", "empty"))
    rows = [{"id": r.id, "out": {"grad": r.out["grad"].tolist()}} for r in gv.records("grad", "funnel")]
    right.write_text("\n".join(map(json.dumps, rows)))
    rows[0]["out"]["grad"][0] += 1e-6
    wrong.write_text("\n".join(map(json.dumps, rows)))
    empty.write_text("")
    assert command("check", str(right), "--op", "grad") == 0
    assert command("check", str(wrong), "--op", "grad") == 1
    assert command("check", str(empty)) == 3
    assert command("check", str(tmp_path / "none")) == 2
    assert command("check") == 2
    assert command("--op", "nonsense") == 2
    capsys.readouterr()


def test_each_target_is_described():
    counts = collections.Counter(r["target"] for r in gv.lines())
    for name, target in gv.targets().items():
        assert target.dim == len(target.coordinates) == model(name).dim
        assert counts[name] > 50
