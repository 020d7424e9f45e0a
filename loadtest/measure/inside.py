"""Which requests belong to a window, and how those that ended in it did."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtest.client.rows import Rows
from loadtest.measure.events import first_and_last

# Kinds of error that mean another length than promised: they spoil the work's exactness, not its success.
LENGTH_KINDS = ("short_output", "long_output", "finish_reason")


@dataclass(frozen=True, slots=True)
class Inside:
    """Masks over requests: under way at any time in the window, first output inside it, ended inside.

    failed, short: of those that ended inside.
    """

    present: npt.NDArray[np.bool_]
    begun: npt.NDArray[np.bool_]
    ended: npt.NDArray[np.bool_]
    failed: npt.NDArray[np.bool_]
    short: npt.NDArray[np.bool_]


def rows_in(rows: Rows, begin: int, end: int) -> Inside:
    """Which requests belong to a window, by event time."""
    t1, _ = first_and_last(rows)
    ended = (rows.ended_ns >= begin) & (rows.ended_ns < end)
    kinds = np.array(rows.error_kind, dtype=object)
    short = np.isin(kinds, LENGTH_KINDS)
    failed = (kinds != "") & (kinds != "cut") & ~short
    present = (rows.sent_ns < end) & (rows.ended_ns > begin)
    begun = (t1 >= begin) & (t1 < end)
    return Inside(present, begun, ended & (kinds != "cut"), ended & failed, ended & short)
