"""Tables of choices are read as the kernel's own host code would use them."""

from __future__ import annotations

import pytest

from kernels.geometry import Geometry
from kernels.tuned import Choice, Table, TableError, read_choices

TABLE = Table("TUNED", ("heads", "batch"), ("BLOCK", "num_warps", "num_stages", "_", "maxnreg"))
SIXTEEN_HEADS = Geometry(64, 4)


def _read(literal: str) -> tuple[list[Choice], bool]:
    return read_choices(f"TUNED: dict = {literal}\n", TABLE, 120, SIXTEEN_HEADS)


def test_rows_of_other_archs_are_not_read() -> None:
    assert _read('{"90": [[0, 0, 16, 4, 2]]}') == ([], False)


def test_unbounded_row_covers_every_problem_and_hides_what_follows() -> None:
    choices, covered = _read('{"120": [[0, 8, 16, 4, 2], [0, 0, 32, 4, 3], [0, 0, 64, 8, 1]]}')
    assert [choice.constants for choice in choices] == [{"BLOCK": 16}, {"BLOCK": 32}]
    assert covered


def test_row_that_the_heads_cannot_reach_is_left_out() -> None:
    assert _read('{"120": [[8, 0, 64, 4, 2]]}') == ([], False)


def test_equal_rows_are_one_choice_and_programs_per_sm_is_none_of_the_compilers_business() -> None:
    choices, covered = _read('{"120": [[0, 8, 16, 4, 2, 1], [0, 64, 16, 4, 2, 3, 0]]}')
    assert (choices, covered) == ([Choice({"BLOCK": 16}, 4, 2)], False)
    assert choices[0].rows == ("1 (batch to 8)", "2 (batch to 64)")


def test_row_without_bounds_is_for_any_problem() -> None:
    choices, _ = _read('{"120": [[8, 0, 16, 4, 2], [16, 4, 32, 4, 2], [0, 0, 64, 4, 2]]}')
    assert [choice.rows for choice in choices] == [("2 (heads to 16, batch to 4)",), ("3 (any problem)",)]


def test_register_limit_is_part_of_the_choice() -> None:
    assert _read('{"120": [[0, 0, 16, 4, 2, 1, 128]]}')[0] == [Choice({"BLOCK": 16, "maxnreg": 128}, 4, 2)]


def test_word_stands_for_constants_and_an_unknown_one_is_refused() -> None:
    table = Table("TUNED", ("batch",), ("num_warps", "num_stages", "merge"), {"merge": {"fused": {"FUSED": True}}})
    source = 'TUNED = {"120": [[0, 4, 2, WORD]]}'
    found, _ = read_choices(source.replace("WORD", '"fused"'), table, 120, SIXTEEN_HEADS)
    assert found == [Choice({"FUSED": True}, 4, 2)]
    with pytest.raises(TableError, match="unknown word 'late'"):
        read_choices(source.replace("WORD", '"late"'), table, 120, SIXTEEN_HEADS)


@pytest.mark.parametrize(
    ("literal", "named"),
    [
        ("[]", "no mapping"),
        ("make()", "no literal"),
        ('{"120": [[0, 0, 16]]}', "num_warps"),
        ('{"120": ["x"]}', "'x'"),
        ('{"120": [[1.5]]}', "1.5"),
    ],
)
def test_odd_table_is_refused(literal: str, named: str) -> None:
    with pytest.raises(TableError, match=named):
        _read(literal)


def test_missing_table_is_refused() -> None:
    with pytest.raises(TableError, match="no module-level TUNED"):
        read_choices("OTHER = {}\n", TABLE, 120, SIXTEEN_HEADS)
