"""What the last word of a command line may become, for completion.sh: known values from here, all else by Invoke."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence

from app.errors import LabError
from app.task_help import HELP

Source = Callable[[], Sequence[str]]
LISTS = ("variants",)
_WORD = re.compile(r"[\w.-]+", re.ASCII)


# Both deferred: a shell waits at every key, and most keys need neither.
def _variants() -> Sequence[str]:
    from app.kernel.variants import load_variants

    return load_variants().names


def _campaigns() -> Sequence[str]:
    from app.campaign.runs import campaign_names

    return campaign_names()


def _fixed(*words: str) -> Source:
    return lambda: words


# No word of ours, so that the shell completes files.
_paths = _fixed()
SOURCES: Mapping[str, Source] = {
    "variant": _variants,
    "variants": _variants,
    "against": _variants,
    "from": _variants,
    "id": _campaigns,
    "resume": _campaigns,
    "campaign": _campaigns,
    "engine": _fixed("sim", "sglang"),
    "runtime": _fixed("local", "docker"),
    "design": _fixed("mirrored", "single"),
    **dict.fromkeys(("out", "trace", "model", "flashmla", "calibration", "import", "amdahl", "caches"), _paths),
}
# Where a task means something else by the word: a file, two fixed words, a name to be made up, a number.
EXCEPTIONS: Mapping[tuple[str, str], Source | None] = {
    ("ledger", "kernels"): _paths,
    ("diff", "against"): _fixed("pristine", "control"),
    ("compare", "id"): None,
    ("plan", "variants"): None,
}


def candidates(line: str) -> list[str] | None:
    """Words that the last word of a command line may become; None where no option with known values awaits one."""
    words = line.split()
    *before, last = [*words, ""] if not words or line[-1].isspace() else words
    option, begun = before[-1] if before else "", last
    if last.startswith("--") and "=" in last:
        option, _, begun = last.partition("=")
    task = next((word for word in reversed(before) if word.replace("-", "_") in HELP), "")
    name = option.removeprefix("--")
    if not task or name == option or (source := source_of(task, name)) is None:
        return None
    kept, known = last.removesuffix(begun), [word for word in source() if _WORD.fullmatch(word)]
    fitting = _extended(begun, known) if name in LISTS else known
    return [kept + word for word in fitting if word.startswith(begun)]


def source_of(task: str, option: str) -> Source | None:
    """What names the values of a task's option; None where nothing does."""
    return EXCEPTIONS.get((task, option), SOURCES.get(option))


def main(line: str) -> None:
    """Prints a line for each candidate; of a fault nothing, which leaves the word to the shell's own completion."""
    try:
        found = candidates(line)
    except LabError:
        found = []
    if found is None:
        from app.program import complete

        complete(line)
    for word in found or ():
        print(word)


def _extended(begun: str, known: Sequence[str]) -> list[str]:
    """A list of names, begun, with each name that may stand last in it."""
    head, comma, tail = begun.rpartition(",")
    left = [name for name in known if name not in head.split(",")]
    fitting = [head + comma + name for name in left if name.startswith(tail)]
    # Of a word and the same with a comma the shell takes what both share: it puts no space, which would end the list.
    return [*fitting, *(f"{word}," for word in fitting)] if len(fitting) == 1 and len(left) > 1 else fitting


if __name__ == "__main__":
    main(sys.argv[1])
