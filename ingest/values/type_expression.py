"""Parses the text of a type, such as `decimal(10,2)` or `map<string,array<int32>>`, to a syntax tree."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ingest.errors import ConfigError

_WORD = re.compile(r"\s*([a-z][a-z0-9_]*)\s*")
_ARGUMENTS = re.compile(r"\(([^()<>]*)\)\s*")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([A-Za-z_][A-Za-z0-9_]*))\s*:")


@dataclass(frozen=True, slots=True)
class TypeExpression:
    """A node of the tree: `word(arguments)<elements>`, or `word<name:element,...>` if it has `names`."""

    word: str
    arguments: tuple[str, ...] = ()
    elements: tuple[TypeExpression, ...] = ()
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = self.word
        if self.arguments:
            text += f"({','.join(self.arguments)})"
        if self.names:
            fields = zip(self.names, self.elements, strict=True)
            return text + f"<{','.join(f'{_quoted(name)}:{element}' for name, element in fields)}>"
        if self.elements or self.word == "struct":
            text += f"<{','.join(map(str, self.elements))}>"
        return text


def parse_type_expression(text: str) -> TypeExpression:
    """Returns the tree of `text`. Raises ConfigError if the text is no type."""
    expression, end = _expression(text, 0)
    if text[end:].strip():
        raise _no_type(text)
    return expression


def _expression(text: str, start: int) -> tuple[TypeExpression, int]:
    word = _WORD.match(text, start)
    if word is None:
        raise _no_type(text)
    position = word.end()
    arguments: tuple[str, ...] = ()
    if found := _ARGUMENTS.match(text, position):
        arguments = tuple(part.strip() for part in found[1].split(","))
        position = found.end()
    if text[position : position + 1] != "<":
        return TypeExpression(word[1], arguments), position
    names: list[str] = []
    elements: list[TypeExpression] = []
    if text[position + 1 : position + 2] == ">":
        return TypeExpression(word[1], arguments), position + 2
    while text[position : position + 1] in ("<", ","):
        position += 1
        if word[1] == "struct":
            field = _FIELD.match(text, position)
            if field is None:
                raise _no_type(text)
            names.append(field[1].replace("``", "`") if field[1] else field[2])
            position = field.end()
        element, position = _expression(text, position)
        elements.append(element)
    if text[position : position + 1] != ">":
        raise _no_type(text)
    return TypeExpression(word[1], arguments, tuple(elements), tuple(names)), position + 1


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _no_type(text: str) -> ConfigError:
    return ConfigError(
        f"{text!r} is not a type",
        "write one such as int64, decimal(10,2), timestamp_from_micros or array<string>",
    )
