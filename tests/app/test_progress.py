from __future__ import annotations

import io
from datetime import datetime

import pytest

from app.progress import Progress, spoken


@pytest.fixture(autouse=True)
def _capable_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def plain(stream: io.StringIO, clock: Clock, *, quiet: bool = False) -> Progress:
    return Progress(16, quiet=quiet, stream=stream, clock=clock, today=lambda: datetime(2026, 11, 2, 9, 5, 1))


def test_plain_line_is_dated_and_says_what_how_far_and_what_is_left() -> None:
    stream = io.StringIO()
    with plain(stream, Clock()) as progress:
        progress.step("block 2/4 v1 C=96", done=5, eta_s=130)
    assert stream.getvalue() == "2026-11-02 09:05:01  5/16 starts  block 2/4 v1 C=96  about 2 min left\n"


def test_time_left_follows_from_the_pace_when_none_is_given() -> None:
    stream, clock = io.StringIO(), Clock()
    with plain(stream, clock) as progress:
        progress.step("v1", done=0)
        clock.now += 40
        progress.step("v1", done=4)
    assert "about 2 min left" in stream.getvalue()


def test_what_was_finished_before_and_what_is_done_again_do_not_spoil_the_pace() -> None:
    stream, clock = io.StringIO(), Clock()
    with plain(stream, clock) as progress:
        for done in (8, 9, 10, 8, 9):
            progress.step(f"at {done}", done=done)
            clock.now += 10
    first, *_, again, last = lines_of(stream)
    assert "left" not in first
    assert again.endswith("about 2 min left")
    assert last.endswith("about 2 min left")


def test_time_left_is_not_guessed_before_anything_is_done() -> None:
    stream = io.StringIO()
    with plain(stream, Clock()) as progress:
        progress.step("v1")
    assert "left" not in stream.getvalue()


def test_no_time_is_left_to_tell_when_all_is_done_and_may_be_done_again() -> None:
    stream, clock = io.StringIO(), Clock()
    with plain(stream, clock) as progress:
        for done in (0, 8, 16):
            clock.now += 10
            progress.step(f"at {done}", done=done)
    assert "left" not in lines_of(stream)[-1]


def test_repeated_step_is_written_once_until_ten_seconds_passed() -> None:
    stream, clock = io.StringIO(), Clock()
    with plain(stream, clock) as progress:
        for _ in range(12):
            progress.step("filling", done=1)
            clock.now += 1
    assert len(lines_of(stream)) == 2


def test_quiet_gives_plain_lines_on_a_terminal() -> None:
    stream = Terminal()
    with plain(stream, Clock(), quiet=True) as progress:
        progress.step("v1", done=1)
    assert "\x1b" not in stream.getvalue()


def test_terminal_gets_a_live_bar_that_is_gone_afterwards() -> None:
    stream = Terminal()
    with Progress(16, stream=stream) as progress:
        progress.step("block 1/4 [v1]", done=3, eta_s=10)
        progress.say("block 1 is void")
    assert "block 1/4 [v1]" in stream.getvalue()
    assert stream.getvalue().endswith("\x1b[1A\x1b[2K")


def test_terminal_is_restored_when_the_work_fails() -> None:
    stream = Terminal()
    with pytest.raises(KeyError), Progress(2, stream=stream):
        raise KeyError
    assert "\x1b[?25h" in stream.getvalue()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-3, "0 s"), (40, "40 s"), (720, "12 min"), (11_100, "3 h 05 min"), (187_200, "2 d 4 h")],
)
def test_duration_is_spoken_in_its_own_size(seconds: float, words: str) -> None:
    assert spoken(seconds) == words
