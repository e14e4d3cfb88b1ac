"""Limits of every package: two alone go below the public interfaces of Spark and Delta, and none grows too large."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ("ingest", "jobs", "airflow_dags", "tools")
BELOW = ("ingest/delta/", "ingest/jvm/")
"""The only packages below Spark's and Delta's public interface."""
PRIVATE = frozenset({"_sc", "_gateway", "_active_spark_context", "_ensure_initialized"})
"""Attributes of PySpark's classes that lead into the JVM; all others begin with `_j`."""
LIBRARIES = ("pyspark.", "delta.")
INTERNAL_MODULES = ("py4j.", "pyspark.sql.classic.", "ingest.jvm.classes.", "ingest.jvm.constructors.")
PUBLIC_NAMES = frozenset({"ingest.jvm.constructors.require_versions"})
"""Names of these modules that all may import."""
OTHER_CLASSES = ("ingest.", "java.", "org.apache.hadoop.")
"""Classes whose constructors are the project's own, or stable."""
MODULES, PACKAGE_LINES, LINES, FUNCTION_LINES = 20, 3000, 330, 60


def modules(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def is_private(name: str) -> bool:
    return name.startswith("_j") or name in PRIVATE


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Returns the full names that a statement imports."""
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    return [prefix + alias.name for alias in node.names]


def is_internal(name: str) -> bool:
    """Returns True for a module, or a name in one, that only `BELOW` may import."""
    is_private_part = f"{name}.".startswith(LIBRARIES) and any(part.startswith("_") for part in name.split("."))
    return is_private_part or (f"{name}.".startswith(INTERNAL_MODULES) and name not in PUBLIC_NAMES)


def uses_of_internals(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields line and name of each use of what is below the public interface of Spark or Delta."""
    libraries = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(f"{name}.".startswith(LIBRARIES) for name in imported(node))
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((node.lineno, name) for name in imported(node) if is_internal(name))
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute(attr=name) if is_private(name):
                yield node.lineno, name
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in libraries and re.match("_[^_]", name):
                yield node.lineno, f"{owner}.{name}"
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]) if is_private(name):
                yield node.lineno, name


def test_only_two_packages_go_below_the_public_interface() -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in modules(*CODE)
        if not file.relative_to(ROOT).as_posix().startswith(BELOW)
        for line, name in uses_of_internals(parsed(file))
    ]
    assert found == [], "a module of ingest/jvm or ingest/delta does this, with DataFrames and Columns as its interface"


@pytest.mark.parametrize(
    "text",
    [
        "spark._jvm.java.lang.System.exit(0)",
        "frame._jdf.count()",
        "getattr(column, '_jc')",
        "SparkContext._gateway",
        "from py4j.protocol import Py4JError",
        "import py4j.protocol",
        "from pyspark.sql.classic import dataframe",
        "from pyspark.sql.classic.column import Column",
        "from pyspark import _globals",
        "from pyspark.sql import DataFrame\nDataFrame._repr_html_",
        "from ingest.jvm import constructors",
        "from ingest.jvm.classes import java_class",
    ],
)
def test_what_is_below_the_public_interface_is_recognised(text: str) -> None:
    assert [*uses_of_internals(ast.parse(text))]


def is_library_class(node: ast.AST) -> bool:
    """Returns True for `java_class(jvm, NAME)` of a class of Spark or Delta."""
    match node:
        case ast.Call(func=ast.Name(id="java_class"), args=[_, ast.Constant(value=str(name))]):
            return not name.startswith(OTHER_CLASSES)
        case ast.Call(func=ast.Name(id="java_class"), args=[_, ast.JoinedStr()]):
            return True
    return False


def constructed(tree: ast.Module) -> Iterator[int]:
    """Yields the line of each constructor of Spark's or Delta's classes that is called."""
    assigned = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_library_class(node.value)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in assigned:
                yield node.lineno
            case ast.Call(func=function) if is_library_class(function):
                yield node.lineno


def test_one_module_calls_constructors_of_spark_and_delta() -> None:
    calls = {file.relative_to(ROOT).as_posix(): [*constructed(parsed(file))] for file in modules("ingest")}
    assert [name for name, lines in calls.items() if lines] == ["ingest/jvm/constructors.py"]
    assert len(calls["ingest/jvm/constructors.py"]) >= 15


UNGUARDED = {
    "erasure/ledger.py": 2,  # Heals it.
    "lakehouse/vacuum.py": 1,
    "pipeline/archive.py": 1,  # `archive verify`, which finds damaged copies of events.
    "pipeline/replay.py": 1,  # Replays files, without a pipeline.
    "pipeline/status.py": 1,  # Shows what is wrong with it.
    "schema.py": 1,
}
"""Module of the command line → sessions that it starts without a look at the ledger of erasures."""


def test_every_command_that_reads_events_starts_with_a_whole_ledger() -> None:
    """Each block that starts a session also goes through `guarded`."""
    found = {}
    for file in modules("ingest/cli"):
        names = Counter(
            node.func.id
            for node in ast.walk(parsed(file))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        )
        unguarded = names["running"] - names["guarded"]
        if unguarded:
            found[file.relative_to(ROOT / "ingest/cli").as_posix()] = unguarded
    assert found == UNGUARDED


def test_no_package_has_too_many_modules() -> None:
    sizes = Counter(file.parent.relative_to(ROOT) for file in modules(*CODE, "tests"))
    assert {str(folder): size for folder, size in sizes.items() if size > MODULES} == {}


def test_no_package_is_too_long() -> None:
    """Packages within it count by themselves."""
    lengths = Counter[str]()
    for file in modules(*CODE):
        lengths[str(file.parent.relative_to(ROOT))] += len(file.read_text(encoding="utf-8").splitlines())
    assert {name: length for name, length in lengths.items() if length > PACKAGE_LINES} == {}


def test_no_module_is_too_long() -> None:
    lengths = {str(f.relative_to(ROOT)): len(f.read_text(encoding="utf-8").splitlines()) for f in modules(*CODE)}
    assert {name: length for name, length in lengths.items() if length > LINES} == {}


def test_no_function_is_too_long() -> None:
    lengths = {
        f"{file.relative_to(ROOT)}:{node.name}": node.end_lineno - node.lineno + 1
        for file in modules(*CODE)
        for node in ast.walk(parsed(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None
    }
    assert {name: length for name, length in lengths.items() if length > FUNCTION_LINES} == {}
