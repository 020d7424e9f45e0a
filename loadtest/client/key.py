"""The servers' API key: out of a file that an environment variable names, into one header, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from app.errors import UsageError

# The same file that SGLang takes as `--config`: neither the list of processes nor `docker inspect` shows what is in it.
KEY_FILE = "SGLANG_KEY_FILE"
LIMIT_BYTES = 64 * 1024
_LINE = re.compile(r"""^api-key:[ \t]*(["']?)([\x21\x23-\x26\x28-\x7e]{8,512})\1[ \t]*$""", re.MULTILINE)


def key_file(environ: Mapping[str, str]) -> Path | None:
    """The file that holds the key; None when the servers ask for none."""
    return Path(environ[KEY_FILE]) if environ.get(KEY_FILE) else None


def read_key(file: Path) -> str:
    """The key in a file; UsageError, which never quotes the file, when there is none."""
    try:
        with file.open(encoding="utf-8") as source:
            found = _LINE.findall(source.read(LIMIT_BYTES))
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{KEY_FILE}={file} cannot be read ({type(e).__name__}); correct the path") from e
    if len(found) != 1:
        raise UsageError(f"{KEY_FILE}={file} needs one line `api-key: KEY`, of 8 to 512 printable characters")
    return str(found[0][1])


def authorization(environ: Mapping[str, str]) -> dict[str, str]:
    """The header that opens the servers; empty when they ask for none."""
    file = key_file(environ)
    return {} if file is None else {"Authorization": f"Bearer {_key(file)}"}


def without_key(text: str, environ: Mapping[str, str]) -> str:
    """A server's words without the key, which it may send back in what it says is wrong or print into its log."""
    file = key_file(environ)
    return text if file is None else text.replace(_key(file), "[key]")


@lru_cache(maxsize=8)
def _key(file: Path) -> str:
    # Asked for with every request.
    return read_key(file)
