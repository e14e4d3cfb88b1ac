"""Draws names and types of columns for tests. The names are those that the code itself uses, collected from its syntax
trees, so a new internal name is covered without a change here."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import ingest
from ingest.changelog.reserved_names import is_reserved

IN_ISSUES = ("request", "position", "op", "key_hash", "_file", "_number", "_run", "_next", "_same", "_key")
"""Names of columns that once collided with an internal one. Every draw has them."""
TYPES: dict[str, Any] = {
    "string": lambda n: f"text {n}",
    "int64": lambda n: 1_000 + 7 * n,
    "float64": lambda n: n + 0.5,
    "boolean": lambda n: n % 2 == 0,
    "decimal(10,2)": lambda n: f"{n}.25",
    "date": lambda n: f"2024-03-{n + 1:02}",
    "timestamp": lambda n: f"2024-03-{n + 1:02}T12:00:00.000001",
    "timestamp_tz": lambda n: f"2024-03-{n + 1:02}T12:00:00Z",
    "array<int64>": lambda n: [n, None],
}
"""Type → the JSON value of version n, below 28."""
_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_TYPED = re.compile(rf"({_WORD}):? (?:string|int|bigint|long|double|boolean|binary|date|timestamp|struct|array|map)\b")
_TAKES_EXPRESSIONS = {"expr", "selectExpr", "where", "filter", "agg", "count_if"}


@dataclass(frozen=True)
class DrawnColumn:
    """A column to test. `control`: the name of a column of the same type and values that collides with nothing."""

    name: str
    type: str
    control: str

    def values(self, version: int) -> dict[str, Any]:
        """Returns the values of both columns in an image."""
        value = TYPES[self.type](version)
        return {self.name: value, self.control: value}


def draw_columns(seed: int, count: int, without: Collection[str] = ()) -> list[DrawnColumn]:
    """Returns `count` random columns and those of `IN_ISSUES`. `without`: names that the table has already. Names that
    differ only in case are one column in Delta, so at most one of them is drawn."""
    random = Random(seed)
    named = {name.lower(): name for name in random.sample(internal_names(), len(internal_names()))}
    drawn = [*IN_ISSUES, *(name for name in named.values() if name.lower() not in IN_ISSUES)]
    free = [name for name in drawn if name.lower() not in {other.lower() for other in without}]
    chosen = free[: len(IN_ISSUES) + count]
    return [DrawnColumn(name, random.choice(list(TYPES)), f"plain_{n}") for n, name in enumerate(chosen)]


@cache
def internal_names() -> list[str]:
    """Returns all identifiers in string literals of modules that use Spark, sorted, without reserved names. Some are
    names of no column, which does no harm."""
    found: set[str] = set()
    for file in Path(ingest.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "pyspark" in text:
            found.update(_names(ast.parse(text)))
    return sorted(name for name in found if not is_reserved(name))


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield from re.findall(rf"^{_WORD}$", "".join(map(_piece, node.values)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from re.findall(rf"^{_WORD}$", node.value)
            yield from _TYPED.findall(node.value)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _TAKES_EXPRESSIONS
        ):
            for text in (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)):
                yield from re.findall(_WORD, text)


def _piece(value: ast.expr) -> str:
    """Returns a piece of an f-string; 0 for what is computed, which numbers a column."""
    return str(value.value) if isinstance(value, ast.Constant) else "0"
