"""The load client against every shape of stream, before a campaign trusts what it stamps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.bench_client.mock import check_conformance
from app.campaign.runs import RunFolder
from app.errors import LoadError
from app.records import write_json
from loadtest.client.conformance import Check

MOST_NAMED = 3


def require_conformance(folder: RunFolder, check: Callable[[], Sequence[Check]] = check_conformance) -> None:
    """Plays all shapes to the client and keeps conformance.json; LoadError names what it fails."""
    checks = check()
    wrong = [c for c in checks if not c.ok]
    write_json(folder.path / "conformance.json", _record(checks, wrong))
    if wrong:
        named = "; ".join(_said(c) for c in wrong[:MOST_NAMED])
        raise LoadError(
            f"the load client fails {len(wrong)} of {len(checks)} stream shapes ({named}); nothing is measured with "
            f"it: once the machine is less busy go on with `{folder.resume_command}`, or see "
            f"`./lab test --select conformance`"
        )


def _record(checks: Sequence[Check], wrong: Sequence[Check]) -> dict[str, Any]:
    return {"shapes": len(checks), "ok": len(checks) - len(wrong), "wrong": [_said(c) for c in wrong]}


def _said(check: Check) -> str:
    misread = check.found != check.expected
    taken = f"taken for {check.found or 'sound'!r} in place of {check.expected or 'sound'!r}"
    return f"{check.shape} on {check.api}: {', '.join((*([taken] if misread else []), *check.faults))}"
