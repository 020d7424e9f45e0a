"""The command line of `./lab`, and of plain `invoke`: Invoke's own, with a hint at what an unknown word meant."""

from __future__ import annotations

import difflib
import re
import sys

from invoke.exceptions import ParseError
from invoke.program import Program

LAB = "./lab"
# Where the context of a task holds the names of its options that were typed, by task.
TYPED = "typed"


class Lab(Program):
    """Invoke's program with a hint behind an unknown task or option, and with the lab's version for its own."""

    def print_version(self) -> None:
        """Prints the lab's version and what it was put together of."""
        # Deferred: no task needs it.
        from app.version import version_lines

        print(*version_lines(), sep="\n")

    def parse_tasks(self) -> None:
        """Invoke's own parsing; the ParseError of an unknown word names the nearest known one and the list of all."""
        try:
            super().parse_tasks()
        except ParseError as error:
            raise ParseError(f"{error}{self._hint(error)}", error.context) from error

    def execute(self) -> None:
        """Invoke's own; each task finds in its context which options were typed, those at their default's value too."""
        typed = {task.name: [a.name for a in task.args.values() if a.got_value] for task in self.tasks}
        self.config.update({TYPED: typed})
        super().execute()

    def _hint(self, error: ParseError) -> str:
        unknown = re.fullmatch(r"No idea what '(.+)' is!", str(error))
        if unknown is None:
            return ""
        task, *rest = self.core.unparsed
        called = LAB if self.binary == LAB else "invoke"
        word, known = unknown[1], list(self.collection.task_names)
        where = f"{'./lab alone' if called == LAB else 'invoke --list'} lists the tasks"
        if task in known:
            known = list(self.parser.contexts[task].flag_names())
            where = f"{called} --help {task} lists its options"
            # Invoke names the value that follows an unknown option, not the option.
            word = next((w for w in rest if w.startswith("-") and w.partition("=")[0] not in known), word)
        near = difflib.get_close_matches(word, known, n=1)
        return f"{''.join(f' Did you mean {name}?' for name in near)} {where}"


def main(words: list[str]) -> None:
    """Runs the tasks that the words name; none, or `help`, lists the tasks."""
    asked = ["--list"] if words in ([], ["help"]) else words
    # The completion script calls what is on the path where .venv is active.
    program = Lab(name="Invoke", binary=LAB, binary_names=["invoke", "inv"])
    program.run([LAB, *asked])


def complete(line: str) -> None:
    """Prints what Invoke knows the last word of a command line to become: tasks and options."""
    # Invoke strips its own name alone from the line, not a path.
    main(["--complete", "--", re.sub(r"^\S+", "invoke", line)])


if __name__ == "__main__":
    main(sys.argv[1:])
