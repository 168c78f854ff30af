"""JAX models under vmap, grad and Hessians: wrong custom rules fail, right ones pass."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

from refhmc.check.mutants.jax_rules import PAIRS


@pytest.mark.parametrize("pair", PAIRS, ids=[pair.id for pair in PAIRS])
def test_custom_rule_that_is_wrong_in_a_composition_is_found(pair):
    wrong, right = pair.wrong(0), pair.right(0)
    assert {row.name for row in wrong.failures} == {"composition in JAX"}, str(wrong)
    assert not right.failures, str(right)
    assert right.row("composition in JAX").status == "PASS"
