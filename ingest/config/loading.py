"""Loads a checked `Pipeline` by its name or the path of its file."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ingest.config import document
from ingest.config.interpolation import InterpolationError, interpolate
from ingest.config.model import Pipeline
from ingest.config.schema import keys_at, paths_of_key
from ingest.errors import ConfigError

_SENTENCES = {
    "missing": "is missing",
    "tuple_type": "should be a list",
    "string_type": "should be text",
    "string_too_short": "should not be empty",
    "too_short": "should not be empty",
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "model_type": "should be a mapping",
    "dict_type": "should be a mapping",
    "mapping_type": "should be a mapping",
}
_UNION_MEMBERS = ("literal[", "mapping[", "dict[", "function-")


def load(path_or_name: str | Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Returns the pipeline of a file or of a bare name. A name means `conf/pipelines/NAME.yaml` in the current folder
    or, if the variable INGEST_CONF is set, `$INGEST_CONF/pipelines/NAME.yaml`.

    `environment` (the process's own by default) resolves `${NAME}`. Raises ConfigError, which names the file and never
    shows a value.
    """
    environment = os.environ if environment is None else environment
    path = find(path_or_name, environment)
    raw = document.read_document(path)
    try:
        values = interpolate(raw, environment)
    except InterpolationError as error:
        raise ConfigError(f"{path}: {error.where}: {error.problem}", error.remedy) from None
    values.setdefault("name", path.stem)
    try:
        return Pipeline.model_validate(values)
    except ValidationError as error:
        problems = _sentences(error)
    raise ConfigError(f"{path}: {'; '.join(problems)}", "correct it and run `ingest check` on the file again")


def find(path_or_name: str | Path, environment: Mapping[str, str]) -> Path:
    """Returns the path of a pipeline's file. A text with a folder or a YAML suffix is a path. Raises ConfigError."""
    text = str(path_or_name)
    given = Path(text).expanduser()
    if given.suffix in {".yaml", ".yml"} or len(given.parts) > 1 or isinstance(path_or_name, Path):
        if given.is_file():
            return given
        raise ConfigError(f"there is no pipeline file {given}", "give the path of a YAML file, or a pipeline's name")
    folder = Path(environment.get("INGEST_CONF") or "conf") / "pipelines"
    path = folder / f"{text}.yaml"
    if text and path.is_file():
        return path
    names = sorted(file.stem for file in folder.glob("*.yaml"))
    near = difflib.get_close_matches(text, names, n=1)
    if near:
        remedy = f"did you mean {near[0]!r}?"
    elif names:
        remedy = f"take one of: {', '.join(names)}"
    else:
        remedy = "run it where conf/pipelines is, set INGEST_CONF, or give the path of a YAML file"
    raise ConfigError(f"there is no pipeline {text!r} in {folder}", remedy)


def _sentences(error: ValidationError) -> list[str]:
    details = error.errors(include_url=False, include_input=False)
    return list(dict.fromkeys(s for d in details if (s := _sentence(d))))


def _sentence(detail: ErrorDetails) -> str:
    if any(isinstance(part, str) and part.startswith("literal[") for part in detail["loc"]):
        return ""
    path = [str(p) for p in detail["loc"] if p != "[key]" and not str(p).startswith(_UNION_MEMBERS)]
    if detail["type"] == "extra_forbidden":
        return _unknown_key(path)
    if detail["type"] == "missing":
        return f"{'.'.join(path)} is missing"
    context: dict[str, Any] = detail.get("ctx") or {}
    if "error" in context:
        message = str(context["error"])
    else:
        message = _SENTENCES.get(detail["type"]) or detail["msg"].removeprefix("Input ")
    return f"{'.'.join(path)}: {message}" if path else message


def _unknown_key(path: list[str]) -> str:
    *parents, key = path
    place = ".".join(parents) or "the top level"
    known = keys_at(parents)
    near = difflib.get_close_matches(key, known, n=1)
    elsewhere = paths_of_key(key)
    if key in known:
        return f"{place} holds {key!r} and its newer name: keep one of the two"
    if elsewhere:
        hint = f"did you mean {elsewhere[0]!r}?"
    elif near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"known here are {', '.join(sorted(known))}"
    return f"unknown key {key!r} at {place}: {hint}"
