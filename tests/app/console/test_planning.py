from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from invoke.context import Context
from invoke.exceptions import Exit

import tasks
from app.console import planning
from app.errors import UsageError

OLDER = Path(__file__).parents[1] / "campaign" / "older_run"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hours": "nan"}, "--hours 'nan' is not a finite number"),
        ({"hours": "inf"}, "--hours 'inf' is not a finite number"),
        ({"hours": "-5"}, "--hours -5 is out of range; above 0, at most 8,760"),
        ({"hours": "1e300"}, "--hours 1e300 is out of range; above 0, at most 8,760"),
        ({"effect": "nan"}, "--effect 'nan' is not a finite number"),
        ({"effect": "inf"}, "--effect 'inf' is not a finite number"),
        ({"effect": "1e9"}, "--effect 1e9 is out of range; at most 1,000 %"),
        ({"power": "nan"}, "--power 'nan' is not a finite number"),
        ({"sd": "nan"}, "--sd 'nan' is not a finite number"),
        ({"sd": "1e300"}, "--sd 1e300 is out of range; above 0, at most 100"),
        ({"sd": "0"}, "--sd 0 is out of range; above 0, at most 100"),
        ({"variants": 0}, "--variants 0 is out of range; at least 2"),
        ({"variants": -2}, "--variants -2 is out of range; at least 2"),
        ({"start_s": -5}, "--start-s -5 is out of range; at least 0"),
        ({"level_s": 0}, "--level-s 0 is out of range; at least 1"),
        ({"concurrency": "0"}, "concurrency 0 in 0; each must be at least 1"),
        ({"concurrency": "8,1"}, "concurrencies 8,1 must rise without repeats: 1,8"),
        ({"concurrency": "1,1"}, "concurrencies 1,1 must rise without repeats: 1"),
        ({"concurrency": ","}, "no concurrency given; for example --concurrency 1,8,48,64,80,96"),
        ({"design": "triple"}, "unknown design 'triple'; known: mirrored, single"),
    ],
)
def test_a_plan_refuses_nonsense_with_its_option_and_value(options: dict[str, str | int], says: str) -> None:
    with pytest.raises(Exit) as ended:
        tasks.plan(Context(), **{"sd": "0.7", **options})
    assert (ended.value.code, ended.value.message) == (2, f"lab: {says}")


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a campaign of the single design under runs/."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(OLDER, tmp_path / "runs" / "a")
    return "a"


@pytest.mark.parametrize(("concurrency", "design"), [("", "mirrored"), ("3", ""), ("3,5", "single")])
def test_a_campaigns_noise_is_known_for_its_own_levels_and_design_alone(
    measured: str, concurrency: str, design: str
) -> None:
    with pytest.raises(UsageError, match=r"campaign a measured no such noise; leave it out, or give --sd"):
        planning.pilot_of(measured, "", concurrency, design)


def test_hours_are_told_beside_the_blocks_that_take_them(capsys: pytest.CaptureFixture[str]) -> None:
    tasks.plan(Context(), sd="0.7", effect="3", variants=3, start_s=600, level_s=90)
    said, each = capsys.readouterr().out.splitlines(), 3 * 2 * (600 + 6 * 90) / 3600
    assert f"+3 % at every concurrency, with power 0.9: 5 blocks, about {5 * each:.1f} h" in said
    assert f"no loss beyond the margin anywhere: 9 blocks, about {9 * each:.1f} h" in said
    assert "for both: invoke compare --blocks 9" in said


def test_what_no_number_of_blocks_finds_takes_no_hours(capsys: pytest.CaptureFixture[str]) -> None:
    tasks.plan(Context(), sd="50", effect="0.1")
    said = capsys.readouterr().out
    assert "with power 0.9: more than 400 blocks\n" in said
    assert "for both" not in said
