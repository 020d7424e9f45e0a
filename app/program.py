"""The command line of `./lab`: Invoke's own, with a hint at what was meant by a word that it does not know."""

from __future__ import annotations

import difflib
import re
import sys

from invoke import __version__
from invoke.exceptions import ParseError
from invoke.program import Program


class Lab(Program):
    """Invoke's program with a hint behind an unknown task or option."""

    def parse_tasks(self) -> None:
        """Invoke's own parsing; the ParseError of an unknown word names the nearest known one and the list of all."""
        try:
            super().parse_tasks()
        except ParseError as error:
            raise ParseError(f"{error}{self._hint(error)}", error.context) from error

    def _hint(self, error: ParseError) -> str:
        unknown = re.fullmatch(r"No idea what '(.+)' is!", str(error))
        if unknown is None:
            return ""
        task, *rest = self.core.unparsed
        word, known, where = unknown[1], list(self.collection.task_names), "./lab alone lists the tasks"
        if task in known:
            known, where = list(self.parser.contexts[task].flag_names()), f"./lab --help {task} lists its options"
            # Invoke names the value that follows an unknown option, not the option.
            word = next((w for w in rest if w.startswith("-") and w.partition("=")[0] not in known), word)
        near = difflib.get_close_matches(word, known, n=1)
        return f"{''.join(f' Did you mean {name}?' for name in near)} {where}"


def main(words: list[str]) -> None:
    """Runs the tasks that the words name; none, or `help`, lists the tasks."""
    asked = ["--list"] if words in ([], ["help"]) else words
    # The completion script calls what is on the path where .venv is active.
    program = Lab(name="Invoke", binary="./lab", binary_names=["invoke", "inv"], version=__version__)
    program.run(["./lab", *asked])


def complete(line: str) -> None:
    """Prints what Invoke knows the last word of a command line to become: tasks and options."""
    # Invoke strips its own name alone from the line, not a path.
    main(["--complete", "--", re.sub(r"^\S+", "invoke", line)])


if __name__ == "__main__":
    main(sys.argv[1:])
