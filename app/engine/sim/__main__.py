"""`python -m app.engine.sim`: one simulated engine process; see the package docstring."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from app.engine.sim.options import Options, parse_options
from app.errors import GateError, LabError, NotReadyError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT. 0 stopped, 2 wrong options or files, 3 kernel file, 4 port taken or no Linux."""
    import uvloop

    from app.engine.sim.process import serve

    options = parse_options(arguments)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options))
    except LabError as e:
        print(f"sim {options.role}: {e}", file=sys.stderr)
        return _exit_code(e)
    return 0


def _exit_code(error: LabError) -> int:
    return 4 if isinstance(error, NotReadyError) else 3 if isinstance(error, GateError) else 2


__all__ = ["Options", "main"]

if __name__ == "__main__":
    sys.exit(main())
