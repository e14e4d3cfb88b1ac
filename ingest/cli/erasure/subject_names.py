"""The subjects that a command names: by an argument, or by the lines of a file or of stdin."""

from __future__ import annotations

from ingest.cli import personal
from ingest.erasure.request import SubjectId, subject_of_json
from ingest.errors import ConfigError

_JSON = 'write {"subject": "member:42"}, as in the request topic'


def named_subjects(subject: str | None, file: str | None) -> list[SubjectId]:
    """Returns the subjects of `--subject` or of `--all`, each once; none without either.

    Nothing is stripped from a key. Only a line feed ends a line, with a carriage return before it or not; a key that
    has one is named as JSON. Raises ConfigError, whose text quotes nothing of a subject."""
    if subject is not None and file is not None:
        raise ConfigError("--subject and --all exclude each other", "give one of them")
    if subject is None and file is None:
        return []
    if file is not None:
        found = [_parsed(line) for line in personal.lines(file, "--all") if line.strip()]
    else:
        found = [_only(subject or "")]
    if not found:
        raise ConfigError(f"{file} names no subject", f"write a subject a line, such as member:42, or {_JSON}")
    return list(dict.fromkeys(found))


def _only(subject: str) -> SubjectId:
    """Returns the subject of `--subject`."""
    if subject != personal.STDIN:
        return SubjectId.parse(subject)
    lines = personal.lines(personal.STDIN, "--subject")
    if len(lines) > 1:
        raise ConfigError(
            "--subject reads more than one line from stdin",
            f"give several subjects with --all; for a key that has a line feed {_JSON}",
        )
    return _parsed("".join(lines))


def _parsed(line: str) -> SubjectId:
    """Returns the subject of a line: `KIND:KEY`, or JSON."""
    return subject_of_json(line)[0] if line.startswith("{") else SubjectId.parse(line)
