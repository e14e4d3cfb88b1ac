"""Checked names: table names from a source, and the folder names and Spark identifiers made from them.

A source's names may hold any character: dots, quotes, slashes, emoji. They reach a path or a SQL text only through the
functions here. Pure: nothing is read or written.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_]*(\.[a-z0-9_]+)*", re.ASCII)
_UNSAFE = re.compile(r"[^a-z0-9_.]+", re.ASCII)
BUCKET_URI = r"^s3://([^/:@?#]+)(/[^?#]*)?$"
"""A regular expression: a bucket of S3-compatible storage, optionally with a prefix."""
_DIGEST_DIGITS = 10
_SLUG_CHARACTERS = 48
_MAX_LISTED = 20
_SEGMENT_CHARACTERS = 128
# Windows opens a device for these names, whatever their extension.
_DEVICES = frozenset({"aux", "con", "nul", "prn"} | {f"{d}{n}" for d in ("com", "lpt") for n in range(10)})


class TableName(str):
    """The name of a source table as the source spells it, such as `claims.members`.

    Any characters but NUL, and at least one of them. Raises ValueError otherwise.
    """

    __slots__ = ()

    def __new__(cls, name: str) -> TableName:
        if not name.strip():
            raise ValueError("a table name can't be empty")
        if "\0" in name:
            raise ValueError("a table name can't hold the character NUL")
        return super().__new__(cls, name)


def path_segment(name: str) -> str:
    """Returns the folder name for `name`: one path segment of `[a-z0-9_.-]`, the same on every machine.

    A name of plain lower-case words joined by single dots is its own segment. Any other name becomes a slug, "-" and 10
    hexadecimal digits of its SHA-256, so that names that differ only in case, accents or characters that a file system
    refuses get different folders. A segment never begins with "_" or ".", because readers of a lakehouse skip such
    folders as hidden. Raises ValueError for an empty name.
    """
    if not name:
        raise ValueError("a name can't be empty")
    if _PLAIN.fullmatch(name) and len(name) <= _SEGMENT_CHARACTERS and name.split(".", maxsplit=1)[0] not in _DEVICES:
        return name
    # "surrogatepass": a name with a lone surrogate, which UTF-8 can't encode, gets a folder too.
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_DIGITS]
    words = (word.strip("_") for word in _UNSAFE.sub("_", name.lower()).split("."))
    slug = ".".join(word for word in words if word)[:_SLUG_CHARACTERS].strip("._") or "name"
    if slug.split(".", maxsplit=1)[0] in _DEVICES:
        slug = f"name_{slug}"
    return f"{slug}-{digest}"


def identifier(name: str) -> str:
    """Returns `name` as one Spark SQL identifier in backticks. Raises ValueError if it is empty."""
    if not name:
        raise ValueError("an identifier can't be empty")
    return "`" + name.replace("`", "``") + "`"


def nearest(name: str, known: Iterable[str], otherwise: str) -> str:
    """Returns a remedy for an unknown `name`: a question that suggests similar `known` names; a list of all known names
    if none is similar and there are at most 20; else `otherwise`."""
    names = sorted(set(known))
    by_text = {one.casefold(): one for one in reversed(names)}
    by_last_part = {one.casefold().rpartition(".")[2]: one for one in reversed(names)}
    text = name.casefold()
    near = [by_text[one] for one in difflib.get_close_matches(text, by_text, n=3, cutoff=0.75)]
    if text in by_last_part and by_last_part[text] not in near:
        near.insert(0, by_last_part[text])
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"take one of: {', '.join(names)}" if 0 < len(names) <= _MAX_LISTED else otherwise


def bucket_and_prefix(uri: str) -> tuple[str, str]:
    """Splits a `BUCKET_URI` into bucket and prefix; a prefix that isn't empty ends with a slash. Raises ValueError for
    another text."""
    found = re.fullmatch(BUCKET_URI, uri)
    if found is None:
        raise ValueError("should be like s3://bucket/prefix, without credentials")
    prefix = (found[2] or "").strip("/")
    return found[1], f"{prefix}/" if prefix else ""


@dataclass(frozen=True, slots=True)
class Lakehouse:
    """The paths of a lakehouse's Delta tables. `root` is a folder or a URI such as `s3a://bucket/prefix`.

    `source` is the name of a pipeline: one pipeline reads one source.
    """

    root: str

    def bronze(self, source: str) -> str:
        return self._below("bronze", path_segment(source))

    def silver(self, source: str, table: str) -> str:
        return self._below("silver", path_segment(source), path_segment(table))

    def pending(self, source: str, table: str) -> str:
        return self._below("pending", path_segment(source), path_segment(table))

    def tombstones(self, source: str, table: str) -> str:
        return self._below("tombstones", path_segment(source), path_segment(table))

    def history(self, source: str, table: str) -> str:
        """Returns the path of a table's row versions (SCD type 2)."""
        return self._below("history", path_segment(source), path_segment(table))

    def changes(self, source: str, table: str) -> str:
        """Returns the path of the changes from which a table's row versions are computed."""
        return self._below("changes", path_segment(source), path_segment(table))

    @property
    def quarantine(self) -> str:
        return self._below("system", "quarantine")

    @property
    def accounts(self) -> str:
        return self._below("system", "accounts")

    @property
    def tables(self) -> str:
        return self._below("system", "tables")

    @property
    def schemas(self) -> str:
        """Returns the path of the source's messages about definitions of tables."""
        return self._below("system", "schemas")

    @property
    def schema_outcomes(self) -> str:
        """Returns the path of what became of changes of tables that were not just applied."""
        return self._below("system", "schema-outcomes")

    @property
    def registered_schemas(self) -> str:
        """Returns the path of the schemas of records that a schema registry gave."""
        return self._below("system", "registered-schemas")

    @property
    def history_facts(self) -> str:
        """Returns the path of facts about event histories that were computed once, to save reading the histories."""
        return self._below("system", "known-history")

    @property
    def backfills(self) -> str:
        return self._below("system", "backfills")

    @property
    def ledger(self) -> str:
        """Returns the path of the ledger of erasure requests."""
        return self._below("system", "ledger")

    @property
    def subject_index(self) -> str:
        """Returns the path of the index from keyed hashes of keys to the spans of bronze that name them."""
        return self._below("system", "subject-index")

    def backfilled(self, source: str, number: int) -> str:
        """Returns the path of the events that backfill `number` has read from another source than bronze."""
        return self._below("backfilled", path_segment(source), str(number))

    def scratch(self, name: str) -> Lakehouse:
        """Returns a lakehouse within this one for temporary tables, such as those of a proof."""
        return Lakehouse(self._below("beside", path_segment(name)))

    def _below(self, *segments: str) -> str:
        return "/".join((self.root.rstrip("/"), *segments))


def caseless(name: str) -> str:
    """Returns a form that is equal for names that Spark and Delta consider equal: as in Java's `equalsIgnoreCase`, each
    character in upper, then in lower case."""
    return "".join(map(_caseless, name))


def _caseless(character: str) -> str:
    upper = character.upper()
    lower = (upper if len(upper) == 1 else character).lower()
    return lower if len(lower) == 1 else character
