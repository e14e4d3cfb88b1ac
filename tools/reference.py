"""Writes `docs/reference` out of the code: `python -m tools.reference FOLDER`. `make docs` runs it at each build.

Three pages: every command with its options, every setting of a pipeline file, every error with its remedy.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from typer.main import get_command

import ingest
from ingest import errors
from ingest.cli.commands import app
from ingest.config import json_schema
from ingest.errors import IngestError
from ingest.failures.table import FAILURES

_ELLIPSIS = "…"
_EXIT_CODES = {errors.EXIT_USER: "change something: a retry can't help", errors.EXIT_TRANSIENT: "try again"}


def pages() -> dict[str, str]:
    """Returns the text of each page by its file name."""
    return {"commands.md": commands(), "configuration.md": configuration(), "errors.md": errors_and_remedies()}


def commands() -> str:
    """Returns the page of the command line."""
    lines = ["# Commands", "", "Out of the code: `ingest COMMAND --help` says the same of your version."]
    for name, command in _leaves("ingest", get_command(app)):
        arguments = [_argument(p) for p in command.params if p.param_type_name == "argument"]
        lines += ["", f"## {name}", "", f"`{' '.join([name, *arguments, '[OPTION]...'])}`", "", *_prose(command.help)]
        rows = [(_spelled(p), _cell(p.help), _default(p)) for p in command.params if not p.hidden]
        lines += ["", *_table(("argument or option", "meaning", "default"), rows)] if rows else []
    return _text(lines)


def configuration() -> str:
    """Returns the page of a pipeline's file."""
    schema = json_schema()
    lines = [
        *("# Configuration", "", "Out of the code: `ingest schema` prints the JSON Schema of your version."),
        *("", "Bold keys are required. Secrets come from the environment: `${NAME}`, or `${NAME:-default}`."),
        *("", "## The file", "", *_settings(schema)),
    ]
    for name, section in sorted(schema["$defs"].items()):
        lines += ["", f"## {name}", "", *_prose(section.get("description")), "", *_settings(section)]
    return _text(lines)


def errors_and_remedies() -> str:
    """Returns the page of the errors: what a library raised, then what ingest finds itself."""
    lines = [
        *(
            "# Errors",
            "",
            "Out of the code. A command that fails prints one sentence and what to do. `--debug` shows the trace.",
        ),
        *(f"`{_ELLIPSIS}` stands for what is named there: a file, a topic, a table.", ""),
        *_table(("exit code", "meaning"), [(str(code), meaning) for code, meaning in _EXIT_CODES.items()]),
        *("", "## Of Kafka, storage and Spark", ""),
        *_table(
            ("what is said", "what to do", "exit code"),
            dict.fromkeys((_cell(_unfilled(f.problem)), _cell(f.remedy), str(f.kind.exit_code)) for f in FAILURES),
        ),
    ]
    found = sorted(_raised(Path(ingest.__file__).parent))
    for kind in sorted({name for name, *_ in found}):
        error = getattr(errors, kind)
        lines += ["", f"## {kind}", "", f"{_prose(error.__doc__)[0]} Exit code {error.exit_code}.", ""]
        lines += _table(("what is said", "what to do"), [(_cell(p), _cell(r)) for name, p, r in found if name == kind])
    return _text(lines)


def _leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yields each command that is no group, with its name on the command line."""
    inner = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for part, below in inner.items():
        yield from _leaves(f"{name} {part}", below)


def _argument(parameter: Any) -> str:
    name = parameter.name.upper()
    return f"{name if parameter.required else f'[{name}]'}{'...' if parameter.nargs == -1 else ''}"


def _spelled(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_argument(parameter)}`"
    spelled = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    return spelled + ("" if parameter.is_flag else f" {_values(parameter)}")


def _values(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    kind = next((a for a in get_args(annotation) if a is not type(None)), annotation)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " or ".join(f"`{value.value}`" for value in kind)
    return f"`{getattr(kind, '__name__', str(kind)).upper()}`"


def _default(parameter: Any) -> str:
    value = parameter.default.value if isinstance(parameter.default, Enum) else parameter.default
    return "" if value in (None, False, ()) or callable(value) or parameter.required else f"`{value}`"


def _settings(section: dict[str, Any]) -> list[str]:
    required = section.get("required", [])
    rows = [
        (
            f"**`{key}`**" if key in required else f"`{key}`",
            _form(value),
            _cell(_described(value)),
            _shown_default(value),
        )
        for key, value in section["properties"].items()
    ]
    return _table(("key", "value", "meaning", "default"), rows)


def _form(node: dict[str, Any]) -> str:
    """Returns the values that a setting may take, as a cell of a table."""
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "enum" in node:
        return ", ".join(f"`{value}`" for value in node["enum"])
    if "const" in node:
        return f"`{node['const']}`"
    if "anyOf" in node:
        return " or ".join(dict.fromkeys(_form(form) for form in node["anyOf"]))
    if node.get("type") == "array":
        return f"list of {_form(node['items'])}"
    if isinstance(node.get("additionalProperties"), dict):
        return f"mapping to {_form(node['additionalProperties'])}"
    return str(node.get("format") or node.get("type", ""))


def _described(node: dict[str, Any]) -> str:
    if "description" in node or "$ref" not in node:
        return str(node.get("description", ""))
    definition = json_schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return str(definition.get("description", ""))


def _shown_default(node: dict[str, Any]) -> str:
    value = node.get("default")
    return "" if value in (None, [], {}) else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _raised(package: Path) -> Iterator[tuple[str, str, str]]:
    """Yields class, problem and remedy of each error that the package's code makes with texts of its own."""
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, IngestError)}
    seen = set()
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
                texts = tuple(_literal(argument) for argument in node.args[-2:])
                if len(texts) == 2 and all(text.strip(f"{_ELLIPSIS} :;,") for text in texts):
                    seen.add((node.func.id, *texts))
    yield from seen


def _literal(node: ast.expr) -> str:
    """Returns a text as the code spells it; what it puts in becomes an ellipsis."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(_literal(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return _literal(node.left) + _literal(node.right)
    return _ELLIPSIS


def _unfilled(problem: str) -> str:
    return re.sub(r"\{\w+\}", _ELLIPSIS, problem)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def _cell(text: str | None) -> str:
    """Returns a text as a cell: on one line, what Markdown or HTML would take for its own escaped outside of code."""
    parts = " ".join((text or "").split()).replace("|", r"\|").split("`")
    if len(parts) % 2 == 0:
        return r"\`".join(_plain(part) for part in parts)
    return "`".join(part if number % 2 else _plain(part) for number, part in enumerate(parts))


def _plain(text: str) -> str:
    return re.sub(r"([*\[])", r"\\\1", text.replace("<", "&lt;"))


def _prose(text: str | None) -> list[str]:
    return [re.sub(r"^Example: (.*)", r"Example: `\1`", line) for line in (text or "").strip().splitlines()]


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes the pages into the folder that the command line names."""
    parser = argparse.ArgumentParser(
        description="Write the reference out of the code. Example: reference.py docs/reference"
    )
    parser.add_argument("folder", type=Path, help="The folder for the pages; it is made if it is missing.")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
