"""Replaces `${NAME}` and `${NAME:-default}` in the values of a pipeline file. `$${` stands for a literal `${`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REFERENCE = re.compile(
    r"(?P<escaped>\$\$\{)|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}|(?P<broken>\$\{)"
)


class InterpolationError(ValueError):
    """A reference that can't be resolved. `where` is the key of the value that holds it."""

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.where, self.problem, self.remedy = where, problem, remedy


def interpolate(value: Any, environment: Mapping[str, str], where: str = "") -> Any:
    """Returns `value` (parsed YAML) with the references in its texts replaced. Keys are unchanged.

    As in a shell, the default also replaces an empty variable. Raises InterpolationError.
    """
    if isinstance(value, str):
        return _interpolate_text(value, environment, where)
    if isinstance(value, Mapping):
        return {k: interpolate(v, environment, f"{where}.{k}" if where else str(k)) for k, v in value.items()}
    if isinstance(value, list):
        return [interpolate(item, environment, f"{where}[{i}]") for i, item in enumerate(value)]
    return value


def _interpolate_text(text: str, environment: Mapping[str, str], where: str) -> str:
    def resolved(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "${"
        if match["broken"]:
            raise InterpolationError(
                where,
                "a '${' that is neither ${NAME} nor ${NAME:-default}",
                "close it, or write '$${' for a plain '${'",
            )
        name, default = match["name"], match["default"]
        if default is not None:
            return environment.get(name) or default[2:]
        if name not in environment:
            raise InterpolationError(
                where,
                f"the environment variable {name} is not set",
                f"set {name}, or write ${{{name}:-default}}",
            )
        return environment[name]

    return _REFERENCE.sub(resolved, text)
