"""The hand-written pages: the README and `docs`, without the generated reference."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "reference"


@cache
def pages() -> dict[Path, str]:
    """Returns the text of each page by its path."""
    written = (page for page in (ROOT / "docs").rglob("*.md") if GENERATED not in page.parents)
    named = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
    return {page: page.read_text(encoding="utf-8") for page in sorted([*named, *written])}


def blocks(language: str) -> list[str]:
    """Returns the code blocks of a language on all pages, without the indent of the list that they stand in."""
    fenced = rf"^( *)```{language}\n(.*?)^ *```"
    found = (match for text in pages().values() for match in re.findall(fenced, text, re.DOTALL | re.MULTILINE))
    return [re.sub(rf"^{indent}", "", block, flags=re.MULTILINE) for indent, block in found]


def commands(program: str) -> list[list[str]]:
    """Returns the words of each command line in a `bash` block that starts the program."""
    lines = [line for block in blocks("bash") for line in block.splitlines() if line.startswith(f"{program} ")]
    return [shlex.split(line, comments=True) for line in lines]
