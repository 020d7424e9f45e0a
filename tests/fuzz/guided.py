"""Coverage-guided form of these tests, for hours, not seconds: python -m tests.fuzz.guided TARGET [libFuzzer options].

Needs atheris (pip install atheris), which has no wheel for every Python and so is in no lock file. Ends at the first
input that is neither taken nor refused in one printable line; libFuzzer leaves it in a file and says how to repeat it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["app", "kernels", "loadtest", "yaml"]):
    from app.environment import ROOT
    from app.errors import LabError
    from app.kernel.autotune import read_configs
    from app.kernel.patch import rewrite
    from app.kernel.variant_files import read_variant
    from app.settings import read_deployment
    from kernels.trace import TraceError, read_device, read_launches
    from loadtest.client.framing import deframe
    from loadtest.client.reply import read_reply
    from loadtest.client.sse import parse_stream
    from loadtest.importing.foreign import read_runs
    from loadtest.measure.server import read_metrics
    from tests.fuzz.test_kernel_file import KERNEL, WANTED
    from tests.fuzz.trying import refusal

READ_PIECE = 40


def variant(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    refusal(lambda: read_variant(file, ROOT))


def settings(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    refusal(lambda: read_deployment(file, {}))


def kernel(_: Path, data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    refusal(lambda: read_configs(text, KERNEL))
    refusal(lambda: rewrite(text, KERNEL, WANTED))


def trace(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    refusal(partial(_trace, file))


def stream(_: Path, data: bytes) -> None:
    body = deframe([data[i : i + READ_PIECE] for i in range(0, len(data), READ_PIECE)])
    read_reply(parse_stream(body.data, body.ends))
    read_reply(parse_stream(data, [len(data)]))


def foreign(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    refusal(lambda: read_runs(file))


def metrics(_: Path, data: bytes) -> None:
    read_metrics(data)


def _trace(file: Path) -> None:
    try:
        read_launches(file, KERNEL)
        read_device(file)
    except TraceError as error:
        raise LabError(str(error)) from error


TARGETS: Mapping[str, Callable[[Path, bytes], None]] = {
    one.__name__: one for one in (variant, settings, kernel, trace, stream, foreign, metrics)
}


def main() -> None:
    """Fuzzes the target named first on the command line until it is stopped or finds a fault."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"name one of {', '.join(TARGETS)}")
    target = TARGETS[sys.argv.pop(1)]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "input.json"
        atheris.Setup(sys.argv, lambda data: target(file, bytes(data)))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
