"""Golden vectors: refhmc agrees with all of them, they can be generated again, and wrong results fail."""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import re

import numpy as np
import pytest

import refhmc
from refhmc.check.vectors import golden as gv
from refhmc.check.vectors.own_answers import ANSWERS, SOLVER_TOLERANCE, answered, as_json, jumping, model, own_results

FOLDER = pathlib.Path(gv.__file__).resolve().parents[1] / "vectors"


# For each operation, targets whose compiled functions other tests use as well; all records without a target.
SEEN = {
    **dict.fromkeys(("logp", "grad", "hess", "fisher", "fisher_derivative"), ("banana", "funnel", "eight-schools")),
    **dict.fromkeys(("metric", "dH"), ("banana", "funnel")),
    **dict.fromkeys(("step", "transition", "kept_transition"), ("banana",)),
    "partial_grad": ("linear-model", "mlp"),
    "split_step": ("linear-model",),
    **dict.fromkeys(("dual_averaging", "welford"), (None,)),
    "warmup_schedule": ("stretched",),  # Stan's is not asked of refhmc
}


@pytest.mark.parametrize(("op", "target"), [(op, target) for op in SEEN for target in SEEN[op]])
def test_refhmc_agrees_with_the_records_of_some_targets(op, target):
    records = list(gv.records(op, target))
    assert records
    report = gv.compare(answered(records), op=op, target=target, solver_tolerance=SOLVER_TOLERANCE)
    report.assert_ok()
    assert not report.not_run


@pytest.mark.sweep
@pytest.mark.parametrize("op", ANSWERS)
def test_refhmc_agrees_with_every_record(op):
    report = gv.compare(own_results(op), op=op, solver_tolerance=SOLVER_TOLERANCE)
    report.assert_ok()
    unanswered = {row.name for row in report.not_run}
    # The only exception is Stan's second window of 1 to 49 draws, where refhmc has one window.
    assert unanswered == ({"warmup_schedule/stan"} if op == "warmup_schedule" else set())


def test_every_operation_has_records():
    assert {r["op"] for r in gv.lines()} == set(ANSWERS)


def test_the_batches_of_a_split_have_each_row_once_and_some_leave_a_remainder():
    seen = set()
    for r in (*gv.records("split_step"), *gv.records("partial_grad"), *gv.records("split_transition")):
        rows = [int(i) for batch in r.args["rows"] for i in batch]
        n = len(gv.targets()[r.target].data["y"])
        sizes = {len(batch) for batch in r.args["rows"]}
        assert sorted(rows) == list(range(n))
        assert max(sizes) - min(sizes) <= 1
        seen.add((r.args.get("integrator"), len(r.args["rows"]), len(sizes) > 1, rows == sorted(rows)))
    for integrator in ("naive-split", "randomized-split", "symmetric-split"):
        assert {M for name, M, *_ in seen if name == integrator} == {1, 2, 3, 5}
        assert {(remainder, given) for name, _, remainder, given in seen if name == integrator} >= {
            (True, True),
            (True, False),
        }


def test_transitions_on_a_split_use_every_order_and_distinguish_baselines():
    """All six orders of three parts are drawn, several of them for whole trajectories, and NUTS goes both ways in them; each
    option of the updates is asked for; HMC accepts and rejects."""
    of_trajectories, of_passes, ways, decisions, options = set(), set(), set(), set(), set()
    for r in gv.records("split_transition"):
        u, M = r.inputs["uniforms"], len(r.args["rows"])
        drawn = r.args.get("integrator") == "randomized-split"
        if M == 3 and (drawn or "normals" in r.inputs):
            passes = u[:2].reshape(1, 2) if drawn else u.reshape(-1, 2)
            (of_trajectories if drawn else of_passes).update((int(3 * a), int(2 * b)) for a, b in passes)
        if r.args["kernel"] == "nuts" and drawn:
            ways.add(np.sign(r.out["index_in_trajectory"]))
        if r.args["kernel"] == "hmc":
            decisions.add(r.out["accepted"])
        if "normals" in r.inputs:
            options.add((r.args["kernel"], *sorted({"decay", "cycle", "exploration", "noise_estimate"} & set(r.args))))
    assert len(of_passes) == 6
    assert len(of_trajectories) >= 3
    assert {-1, 1} <= ways
    assert decisions == {0, 1}
    assert {("sgd",), ("sgd", "decay"), ("sgld",), ("sgld", "cycle", "exploration"), ("sghmc",)} <= options
    assert ("sghmc", "cycle", "noise_estimate") in options


def test_transitions_with_kept_momenta_decide_in_every_way():
    """GHMC and MAMS accept and reject with both kinds of decisions; DRHMC ends in each stage after the first, and in none."""
    decisions, decisions_of_mams, stages = set(), set(), set()
    for r in gv.records("kept_transition"):
        if r.args["kernel"] == "ghmc":
            decisions.add(("slice_variable" in r.inputs, r.out["accepted"]))
        elif r.args["kernel"] == "mams":
            decisions_of_mams.add((r.args["integrator"], r.out["accepted"]))
        elif r.args["kernel"] == "drhmc":
            stages.add(r.out["stage"])
            assert len(r.out["probabilities"]) == r.out["uniforms_used"] >= 2
    assert decisions == {(False, 0), (False, 1), (True, 0), (True, 1)}
    assert decisions_of_mams == {(name, way) for name in ("mclachlan", "bcss(2)") for way in (0, 1)}
    assert {0, 2, 3} <= stages


def test_transitions_of_self_tuning_decide_in_every_way():
    """GIST and AutoStep accept, reject, and meet choices that are impossible at the other end."""
    ways = {"gist": set(), "autostep": set()}
    for r in gv.records("transition"):
        if r.args["kernel"] in ways:
            ways[r.args["kernel"]].add((r.out["accepted"], r.out["acceptance_rate"] > 0))
    assert all(found == {(0, False), (0, True), (1, True)} for found in ways.values())


def test_transitions_with_refreshments_decide_in_every_way():
    """MALT accepts and rejects; MCLMC makes one and more steps with both of the splittings and metrics."""
    decisions, options = set(), set()
    for r in gv.records("transition"):
        if r.args["kernel"] == "malt":
            decisions.add((r.args["n"], r.out["accepted"]))
            assert r.inputs["normals"].shape[0] == r.args["n"] - 1
    for r in gv.records("kept_transition"):
        if r.args["kernel"] == "mclmc":
            options.add((r.args["n"], r.args["integrator"], r.args["metric"]))
    assert decisions == {(3, 0), (3, 1), (2, 0), (2, 1)}
    assert len(options) == 4


def test_windows_equal_stans_except_from_151_to_199():
    stan = {r.args["tune"]: r.out["phases"] for r in gv.records("warmup_schedule", "stan")}
    stretched = {r.args["tune"]: r.out["phases"] for r in gv.records("warmup_schedule", "stretched")}
    assert {n for n in stan if stan[n] != stretched[n]} == set(range(151, 200))


# -------------------------------------------------------------------------------------------------- the files


def test_the_files_are_small():
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 2_000_000


def test_every_file_starts_with_version_generator_and_licence():
    for path in FOLDER.glob("*.jsonl"):
        first = json.loads(path.open().readline())
        assert first["v"] == 1
        assert first["header"]["licence"] == "BSD-3-Clause"
        assert first["header"]["file"] == path.stem


def test_ids_are_unique_and_descriptive():
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
    """Zero only if the answer is, and far below it, except where SoftAbs is sharp and its force depends on the last bits."""
    for r in gv.records():
        sharpness = r.args.get("alpha", 1.0)
        for key, tol in r.tol.items():
            size = max(1.0, np.max(np.abs(r.out[key]), initial=0.0))
            assert tol > 0 or not np.any(r.out[key]), (r.id, key)
            assert tol < (1e-8 if sharpness <= 4 else 1e-4 if sharpness <= 1e3 else 10) * size, (r.id, key)


# One twentieth of the records, selected anew for each version of the library, and a few of the slow ones.
VERSION_SEED = int.from_bytes(refhmc.__version__.encode(), "big")


@pytest.mark.sweep
def test_a_twentieth_of_the_records_is_reproduced():
    pytest.importorskip("mpmath")
    from validation.vectors import files, records

    stored = [r for r in gv.lines() if r["op"] != "warmup_schedule"]
    for r in files.sample(stored, 0.05, VERSION_SEED, costly=2):
        assert records.agrees(r), r["id"]


@pytest.mark.slow
def test_a_fiftieth_is_reproduced_at_90_digits():
    pytest.importorskip("mpmath")
    from validation.vectors import files, records

    for r in files.sample(list(gv.lines()), 0.02, VERSION_SEED):
        assert records.agrees(r, 90), r["id"]


def test_generator_answers_given_inputs(capsys):
    pytest.importorskip("mpmath")
    from validation.vectors import __main__ as program

    stored = next(r for r in gv.lines() if r["op"] == "step" and r["target"] == "banana")
    inputs = {key: stored[key] for key in ("id", "op", "target", "args", "q", "p")}
    assert program.answer([json.dumps(inputs), '{"op": "grad", "target": "moon", "q": ["0x1p+0"]}']) == 1
    again, refused = map(json.loads, capsys.readouterr().out.splitlines())
    assert again == stored
    assert "gaussian, banana" in refused["error"]
    assert "moon" in refused["error"]


# ------------------------------------------------------------------------------------------------- what is wrong


def spoilt(op, spoil, target="funnel"):
    """Return a report on right answers, one of which ``spoil`` changed."""
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
def test_answers_in_wrong_form_fail_without_traceback(value):
    report, name = spoilt("grad", lambda row: row["out"].update(grad=value))
    assert report.row("grad/funnel").status == "FAIL"
    assert report.row("grad/funnel").case == name


@pytest.mark.parametrize("kernel", ["hmc", "sgld"])
def test_missing_order_of_parts_is_found(kernel):
    """u close to 1 leaves every part in place."""
    results = []
    for r in gv.records("split_transition", "linear-model"):
        if r.args["kernel"] == kernel and r.args.get("integrator", "") != "naive-split" and len(r.args["rows"]) == 5:
            u = r.inputs["uniforms"].copy()
            u[: 4 if kernel == "hmc" else None] = 1 - 2**-12
            if len(u) > 1:  # a symmetric split draws none
                results.append({"id": r.id, "out": ANSWERS[r.op](r._replace(inputs={**r.inputs, "uniforms": u}))})
    assert results
    assert gv.compare(results, op="split_transition").failures


def test_a_wrong_count_fails():
    report, name = spoilt("transition", lambda row: row["out"].update(uniforms_used=77))
    assert report.row("transition/funnel").case == name


def test_single_precision_has_its_own_tolerances():
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


def test_exit_status_of_the_command(tmp_path, capsys):
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
        jumps = name == "staircase"  # of which only what knows of jumps is asked
        network = "prior_precision" in target.data  # asked for densities, gradients and parts
        assert target.dim == len(target.coordinates) == (jumping(name, (1,)) if jumps else model(name)).dim
        assert counts[name] > (1 if jumps else 7 if network else 50)
