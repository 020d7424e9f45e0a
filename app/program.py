"""The command line of `./lab`, and of plain `invoke`: Invoke's own, with a hint at what an unknown word meant."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from invoke.exceptions import Exit, ParseError
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

        with _while_read():
            print(*version_lines(), sep="\n")

    def parse_tasks(self) -> None:
        """Invoke's own parsing; the ParseError of an unknown word names the nearest known one and the list of all."""
        try:
            super().parse_tasks()
        except ParseError as error:
            raise ParseError(f"{error}{self._hint(error)}", error.context) from error

    def parse_cleanup(self) -> None:
        """Invoke's own help and lists, which whoever reads them may stop reading.

        A task's help is shown, too, where Invoke took --help for the value of an option that is still missing.
        """
        with _while_read():
            for task in self.tasks:
                if task.name and any(option.value in ("--help", "-h") for option in task.args.values()):
                    self.print_task_help(task.name)
                    raise Exit
            super().parse_cleanup()

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


@contextmanager
def _while_read() -> Iterator[None]:
    """Ends without a word, as rich's tables do, where whoever reads the output has read enough, such as `head`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Exit(code=1) from None


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
