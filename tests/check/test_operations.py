"""The table of operations agrees with the oracle and with the golden vectors."""

from __future__ import annotations

import collections

import numpy as np
import pytest

from refhmc.check.operations import OPERATIONS
from refhmc.check.protocol.messages import array
from refhmc.check.protocol.oracle import Oracle
from refhmc.check.vectors import golden
from refhmc.check.vectors.own_answers import ANSWERS

POINT = {
    "target": "banana",
    "q": [0.3, -0.2],
    "p": [1.0, 0.5],
    "p0": [1.0, 0.5],
    "u": 0.5,
    "eps": 0.1,
    "n": 2,
    "seed": 1,
}
PAIRS = {"key": "k", "starts": [[0.1, 0.2]], "ends": [[0.3, 0.1]]}


def test_the_records_answer_in_the_fields_of_the_table():
    fields = collections.defaultdict(set)
    for record in golden.lines():
        fields[record["op"]] |= set(record["out"])
    assert fields == {op: set(has.record) for op, has in OPERATIONS.items() if has.record}
    assert set(ANSWERS) == set(fields)


def test_all_operations_of_the_oracle_are_in_the_table():
    told = Oracle().answer({"op": "capabilities"})["ops"]
    # A program may compute a momentum from normals; the oracle receives the momentum with the transition.
    assert set(told) == {op for op, has in OPERATIONS.items() if has.ranks or op in ("capabilities", "batch")} - {
        "momentum"
    }


@pytest.mark.parametrize("op", [op for op, has in OPERATIONS.items() if has.ranks and op != "momentum"])
def test_the_oracles_numbers_have_the_ranks_of_the_table(op):
    target = {"target": "gaussian-2"} if op in ("draw_exact", "evidence") else {}
    if op == "partial_grad":
        target = {"target": "diabetes", "q": [0.1] * 9, "parts": 2}
    answer = Oracle().answer({**POINT, **PAIRS, **target, "op": op, "derivative": True})
    for name, rank in OPERATIONS[op].ranks.items():
        assert np.ndim(array(answer[name]) if isinstance(answer[name], list) else 0.0) == rank, (name, answer)
    assert set(answer["hex"]) == set(OPERATIONS[op].ranks)
