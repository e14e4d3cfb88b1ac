"""Parses the text of a pipeline file. Its errors never quote the text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from ingest.errors import ConfigError


class _DuplicateKeyError(yaml.MarkedYAMLError):
    """YAML forbids a key twice in one mapping; PyYAML would silently take the last one."""


class _Loader(yaml.SafeLoader):
    """Loads plain values from YAML. Raises _DuplicateKeyError for a key that a mapping holds twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _DuplicateKeyError(problem=f"the key {key.value!r} twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_document(path: Path) -> dict[Any, Any]:
    """Returns the mapping in the YAML file at `path`. Raises ConfigError."""
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text", "save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(
            f"{path} can't be read: {error.strerror}", "give a readable file, or the pipeline's name"
        ) from None
    except _DuplicateKeyError as error:
        raise ConfigError(f"{path} holds {error.problem}{_place(error)}", "keep one of the two") from None
    except yaml.MarkedYAMLError as error:
        # PyYAML's own message quotes the line, which may hold a password.
        raise ConfigError(
            f"{path} is not valid YAML{_place(error)}",
            "check its indentation, and quote values that hold any of : # & * ! % @ `",
        ) from None
    except yaml.YAMLError:
        raise ConfigError(f"{path} holds a character that YAML forbids", "save it as plain UTF-8 text") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no keys", "begin with source: and lakehouse:")
    return document


def _place(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
