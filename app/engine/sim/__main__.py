"""`python -m app.engine.sim`: one simulated engine process; see the package docstring."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from app.engine.sim.options import parse_options
from app.errors import GateError, LabError, NotReadyError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs until SIGTERM or SIGINT. 0 stopped, 2 wrong options or files, 3 kernel file, 4 port taken or no Linux."""
    options = parse_options(arguments)
    # After the options, so that --help and a wrong one answer at once.
    import uvloop

    from app.engine.sim.process import serve

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(options))
    except LabError as e:
        print(f"sim {options.role}: {e}", file=sys.stderr)
        return 4 if isinstance(e, NotReadyError) else 3 if isinstance(e, GateError) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
