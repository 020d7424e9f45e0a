"""Which image is `stable`: moved only on an accepting verdict for the same kernel, and moved back in one command."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.campaign.runs import RUNS, RunFolder
from app.errors import UsageError, printable
from app.image.build import built_identity, repository, require_image, stamp_as, tags_of
from app.image.daemon import connect, told
from app.image.identity import LABEL, Identity
from app.ledger.campaigns import LEDGER, record_promotion
from app.records import owned, read_json, write_json
from app.settings import Deployment

STATE = Path(".decode-ab")
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Promotion:
    """One entry of the history. tag: by content, so it keeps its meaning; campaign: None when forced.

    decision: the verdict at that time on the same kernel, "none" without one.
    """

    variant: str
    tag: str
    kernel_sha256: str
    campaign: str | None
    reason: str
    at: str
    decision: str = "accept"

    @property
    def forced(self) -> bool:
        """Whether no verdict stood behind it."""
        return self.campaign is None


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a finished campaign said of a variant. kernel: SHA-256 and selector of what it measured."""

    campaign: str
    decision: str
    simulated: bool
    kernel: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.campaign}: {'SIMULATED ' if self.simulated else ''}{self.decision}"


class StableHistory:
    """The promotions of one engine's images, newest last, and the tag that follows them.

    The file is written before the tag is moved and says so, so a command that is cut short is finished by the next.
    """

    def __init__(self, settings: Deployment, engine: str, state: Path = STATE) -> None:
        self._place = repository(settings, engine)
        self._file, self._folder = state / f"stable-{engine}.json", state

    def entries(self) -> list[Promotion]:
        """Oldest first."""
        return [Promotion(**entry) for entry in self._read()["history"]]

    def push(self, promotion: Promotion) -> None:
        """Makes an image stable; a repeat of the newest entry only moves the tag again."""
        with owned(self._folder):
            self._settle()
            history = self.entries()
            if not history or history[-1].tag != promotion.tag:
                history.append(promotion)
            self._move(history)

    def pop(self) -> Promotion:
        """Makes the image before the newest stable again; UsageError when there is none."""
        with owned(self._folder):
            if self._settle() == "pop":
                return self.entries()[-1]
            history = self.entries()
            if len(history) < 2:
                raise UsageError(f"there is no stable image before {history[-1].tag if history else 'the first'}")
            self._move(history[:-1], "pop")
            return history[-2]

    def _read(self) -> dict[str, Any]:
        return dict(read_json(self._file)) if self._file.is_file() else {"schema": SCHEMA, "history": [], "moving": ""}

    def _settle(self) -> str:
        moving = str(self._read()["moving"])
        if moving:
            self._move(self.entries(), moving)
        return moving

    def _move(self, history: list[Promotion], how: str = "push") -> None:
        record = {"schema": SCHEMA, "history": [asdict(entry) for entry in history]}
        client = connect()
        require_image(client, history[-1].tag)
        write_json(self._file, record | {"moving": how})
        with told(f"moving {self._place}:stable"):
            client.api.tag(history[-1].tag, self._place, "stable")
        write_json(self._file, record | {"moving": ""})


def promote(
    settings: Deployment,
    variant: str,
    engine: str,
    *,
    force: bool = False,
    reason: str = "",
    runs: Path = RUNS,
    state: Path = STATE,
    ledger: Path = LEDGER,
) -> Promotion:
    """Makes a variant's image stable; UsageError without an accepting verdict on the same kernel, unless forced.

    A forced promotion needs a reason. It leaves its trace in the history, the ledger, the folder of the campaign that
    it goes against, and the labels of the image that becomes stable, whose layers stay as they were.
    """
    if force and not reason.strip():
        raise UsageError("--force needs --reason, which is kept in the ledger")
    place = repository(settings, engine)
    if not force:
        _require_accept(variant, engine, runs)
    identity = built_identity(settings, variant, engine)
    rulings = list(rulings_on(identity, runs))
    accepted = next((r for r in reversed(rulings) if r.decision == "accept"), None)
    # A later campaign on the same kernel that says otherwise is not outvoted by an older one.
    if accepted and rulings[-1].decision in ("reject", "invalid"):
        accepted = None
    if accepted is None and not force:
        found = ", ".join(map(str, rulings)) or "no campaign measured this kernel"
        raise UsageError(f"{variant} has no accepting verdict on kernel {identity.digest} ({found}); compare it first")
    at = datetime.now(UTC)
    if accepted is not None:
        tag, campaign, decision = tags_of(settings, identity)[1], accepted.campaign, accepted.decision
    else:
        campaign, decision = None, rulings[-1].decision if rulings else "none"
        tag = _forced_image(tags_of(settings, identity)[1], decision, reason, at)
    entry = Promotion(
        variant, tag, identity.kernel_sha256, campaign, reason, at.isoformat(timespec="seconds"), decision
    )
    StableHistory(settings, engine, state).push(entry)
    if entry.forced:
        _keep_trace(entry, rulings[-1].campaign if rulings else None, place, at, runs, ledger)
    return entry


def _forced_image(tag: str, decision: str, reason: str, at: datetime) -> str:
    labels = {"forced": at.isoformat(timespec="seconds"), "forced.decision": decision, "forced.reason": reason}
    return stamp_as(tag, f"{tag}-forced", {f"{LABEL}.{key}": printable(value) for key, value in labels.items()})


def _keep_trace(entry: Promotion, campaign: str | None, place: str, at: datetime, runs: Path, ledger: Path) -> None:
    if campaign is not None:
        RunFolder(runs / campaign).keep_forced(asdict(entry))
    what = f"{place}:stable to {entry.tag}"
    record_promotion(
        entry.variant, what, decision=entry.decision, campaign=campaign, reason=entry.reason, at=at, ledger=ledger
    )


def rollback(settings: Deployment, engine: str, state: Path = STATE) -> Promotion:
    """Makes the previous stable image stable again."""
    return StableHistory(settings, engine, state).pop()


def _require_accept(variant: str, engine: str, runs: Path) -> None:
    # Before the image is asked for: without any such verdict, neither daemon nor image would help.
    rulings = list(rulings_of(variant, runs))
    if any(r.decision == "accept" and r.simulated == (engine == "sim") for r in rulings):
        return
    found = ", ".join(map(str, rulings)) or "no campaign measured this kernel"
    only = "; a SIMULATED verdict is for --engine sim alone" if any(r.simulated for r in rulings) else ""
    raise UsageError(
        f"{variant} has no accepting verdict of engine {engine} ({found}{only if engine != 'sim' else ''}); "
        "compare it on that engine first"
    )


def rulings_on(identity: Identity, runs: Path = RUNS) -> Iterator[Ruling]:
    """Verdicts of finished campaigns that measured this kernel on this kind of engine, oldest first."""
    for ruling in rulings_of(identity.variant, runs):
        if ruling.simulated == identity.simulated and ruling.kernel == (identity.kernel_sha256, identity.selector):
            yield ruling


def rulings_of(variant: str, runs: Path = RUNS) -> Iterator[Ruling]:
    """Verdicts of finished campaigns that measured a variant of this name, of whatever kernel, oldest first."""
    found = sorted(runs.glob("*/verdict.json"), key=lambda p: p.stat().st_mtime)
    for path in found:
        if path.parent.is_symlink():
            continue
        verdict, manifest = dict(read_json(path)), dict(read_json(path.parent / "manifest.json"))
        # What another load driver measured has no proof of its kernel.
        measured = manifest.get("kernels", {}).get(variant)
        if measured is None or verdict.get("interim"):
            continue
        kernel = str(measured["sha256"]), str(measured["selector"])
        for judged in verdict["variants"]:
            if judged["variant"] == variant:
                yield Ruling(path.parent.name, str(judged["decision"]), bool(verdict["simulated"]), kernel)
