"""Reads personal values from a file or from stdin: arguments would be visible in the shell's history and in the list of
processes."""

from __future__ import annotations

import sys
from pathlib import Path

from ingest.errors import ConfigError

STDIN = "-"


def read(file: str, option: str) -> str:
    """Returns the text of a file, or of stdin if `file` is "-". Raises ConfigError, whose text quotes none of it."""
    try:
        if file == STDIN:
            return sys.stdin.buffer.read().decode()
        return Path(file).expanduser().read_bytes().decode()
    except (OSError, UnicodeDecodeError) as failure:
        raise ConfigError(
            f"the file of {option}, {file}, can't be read ({type(failure).__name__})",
            f"give a text file in UTF-8, or {STDIN} for stdin",
        ) from None


def lines(file: str, option: str) -> list[str]:
    """Returns the lines of a file, or of stdin. Only a line feed ends a line, since values have all other characters;
    a carriage return before it doesn't count. Raises ConfigError as `read` does."""
    return [line.removesuffix("\r") for line in read(file, option).removesuffix("\n").split("\n")]
