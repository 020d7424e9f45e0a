"""Completion as a user has it: keys typed into a shell that has sourced completion.sh, and what the line became."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tasks
from app.console import completion
from app.console.completion import EXCEPTIONS, LISTS, SOURCES, candidates, source_of
from app.environment import ROOT
from app.kernel.variants import load_variants
from app.task_help import HELP, option_help

VARIANTS = list(load_variants().names)
# Ctrl-T prints the line as it stands, between marks that no completion holds.
BASH = f"""source {ROOT}/completion.sh
bind 'set bell-style none'
bind -x '"\\C-t": printf "<<%s>>\\n" "$READLINE_LINE"'
"""
ZSH = f"""autoload -Uz compinit && compinit -u -D
source {ROOT}/completion.sh
show() {{ print -r -- "<<$BUFFER>>" }}
zle -N show
bindkey -e
bindkey '^T' show
"""
TIMEOUT_S = 20.0


class Shell:
    """An interactive shell on a terminal of its own."""

    def __init__(self, name: str, home: Path) -> None:
        (home / "bashrc").write_text(BASH)
        (home / ".zshrc").write_text(ZSH)
        # The tasks of .venv, and beside them none of another project.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": str(home), "ZDOTDIR": str(home), "TERM": "dumb", "COLUMNS": "200"}
        command = ["bash", "--noprofile", "--rcfile", str(home / "bashrc"), "-i"] if name == "bash" else ["zsh", "-i"]
        self.terminal, end = pty.openpty()
        self.process = subprocess.Popen(
            command, stdin=end, stdout=end, stderr=end, cwd=ROOT, env=environment, start_new_session=True
        )
        os.close(end)

    def completed(self, typed: str) -> str:
        """The line after the completion key."""
        os.write(self.terminal, f"{typed}\t\x14".encode())
        said, until = "", time.monotonic() + TIMEOUT_S
        while not (found := re.search(r"<<(.*?)>>", said)):
            assert select.select([self.terminal], [], [], until - time.monotonic())[0], said
            said += os.read(self.terminal, 4096).decode(errors="replace")
        os.write(self.terminal, b"\x15")
        return found[1]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


@pytest.fixture(scope="module", params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    if shutil.which(request.param) is None:
        pytest.skip(f"no {request.param} here")
    opened = Shell(request.param, tmp_path_factory.mktemp("home"))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("./lab check --variant pinn", "./lab check --variant pinned "),
        (f"{ROOT}/lab check --variant pinn", f"{ROOT}/lab check --variant pinned "),
        ("invoke compare --variants v1,pinn", "invoke compare --variants v1,pinned"),
        ("inv compare --variants=v1,pinn", "inv compare --variants=v1,pinned"),
        ("invoke compare --against flashi", "invoke compare --against flashinfer "),
        ("invoke diff --variant v1 --against cont", "invoke diff --variant v1 --against control "),
        # Invoke's own part, and the shell's.
        ("./lab calib", "./lab calibrate-verdict "),
        ("invoke check --allow", "invoke check --allow-noop "),
        ("./lab ledger --kernels kernels/results/tuning.c", "./lab ledger --kernels kernels/results/tuning.csv "),
    ],
)
def test_a_shell_completes_tasks_options_and_values(shell: Shell, typed: str, line: str) -> None:
    assert shell.completed(typed) == line


@pytest.mark.parametrize(("line", "words"), [("invoke th", "theirs\n"), ("./lab check --variant ", "")])
def test_in_another_project_invoke_speaks_for_itself_and_lab_not_at_all(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "tasks.py").write_text("from invoke import task\n\n\n@task\ndef theirs(c):\n    pass\n")
    script = f'PATH={Path(sys.executable).parent}:$PATH; source {ROOT}/completion.sh; _decode_ab_words "{line}"'
    asked = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (asked.stdout, asked.stderr) == (words, "")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("./lab check --variant ", VARIANTS),
        ("./lab check --allow-noop --variant v", ["v1", "v2", "v3"]),
        ("./lab compare --variants v1,v2,v", ["v1,v2,v3", "v1,v2,v3,"]),
        ("./lab compare --variants=v1,v", ["--variants=v1,v2", "--variants=v1,v3"]),
        (f"./lab compare --variants {','.join(VARIANTS[:-1])},", [",".join(VARIANTS)]),
        ("./lab check --variant v1 up --engine s", ["sim", "sglang"]),
        ("./lab diff --against ", ["pristine", "control"]),
        ("./lab bench-kernel --out r", []),
        ("./lab compare --id ", None),
        ("./lab plan --variants ", None),
        ("./lab check --variant", None),
        ("./lab --variant ", None),
        ("", None),
    ],
)
def test_only_a_value_that_is_known_is_named_here(line: str, words: list[str] | None) -> None:
    assert candidates(line) == words


@pytest.mark.parametrize("option", ["report --id", "compare --resume", "plan --campaign"])
def test_campaigns_are_those_of_the_folder(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second", "$(touch x)", "empty"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        if name != "empty":
            (tmp_path / "runs" / name / "plan.json").touch()
    assert candidates(f"./lab {option} ") == ["first", "second"]


def test_no_fault_reaches_the_prompt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("app.kernel.variants.load_variants.__defaults__", (Path("nowhere"), ROOT, False))
    completion.main("./lab check --variant ")
    assert capsys.readouterr() == ("", "")


def test_every_option_named_here_is_one_of_a_task_that_takes_a_value() -> None:
    taking = {
        (task, argument.names[0])
        for task in tasks.ns.task_names
        for argument in tasks.ns[task].get_arguments(ignore_unknown_help=True)
        if argument.takes_value
    }
    assert set(SOURCES) | set(LISTS) <= {option for _, option in taking}
    assert set(EXCEPTIONS) <= taking


def test_every_option_that_takes_a_variant_completes_one() -> None:
    told = {(task, option) for task in HELP for option, said in option_help(task).items() if "invoke variants" in said}
    assert len(told) > 5
    assert [place for place in told if source_of(*place) is not SOURCES["variant"]] == []


@pytest.mark.parametrize("option", ["compare --runtime", "compare --engine", "compare --design", "diff --against"])
def test_words_that_never_change_stand_in_the_options_help(option: str) -> None:
    task, _, name = option.partition(" --")
    words = candidates(f"./lab {option} ")
    assert words
    assert [word for word in words if word not in HELP[task][name]] == []


@pytest.mark.parametrize("line", ["./lab compare --variants v1,", "./lab report --id ", "./lab check --al"])
def test_an_answer_comes_before_a_user_waits(line: str) -> None:
    def answered_s() -> float:
        began = os.times()
        command = [sys.executable, "-m", "app.console.completion", line]
        assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60).returncode == 0
        ended = os.times()
        # Processor seconds, which other work on the machine lengthens least.
        return sum(ended[2:4]) - sum(began[2:4])

    assert min(answered_s() for _ in range(3)) < 0.4
