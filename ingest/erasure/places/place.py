"""One place that holds rows of subjects: what the search, the removal, old files and the scan need to know of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.config import Pipeline
from ingest.erasure.context import ErasureContext
from ingest.erasure.removal_run import RemovalRun
from ingest.names import Lakehouse

ITEM, PLACE, REQUEST = "_ingest_item", "_ingest_place", "request"


@dataclass(frozen=True)
class FoundRows:
    """The rows and events of one table that reference a subject's keys. `rows`: `PLACE`, `ITEM`, `REQUEST`,
    `TOMBSTONE_KEY` (null for events) and the keyed hashes `OWN_KEYS` of each."""

    context: ErasureContext
    table: str
    rows: DataFrame

    def in_places(self, *places: str) -> DataFrame:
        """Returns `PLACE`, `ITEM` and `REQUEST` of the rows that are in these places."""
        return self.rows.where(F.col(PLACE).isin(*places)).select(PLACE, ITEM, REQUEST)


class KeyReferences(Protocol):
    """Rows of one place whose keys lead a search to further rows. One object serves one search."""

    def extend(self, keys: DataFrame) -> bool:
        """Reads on for rows that may reference `keys` (`REQUEST`, `KEY_HASH`). Returns True if `of_table` returns more
        than before."""

    def of_table(self, table: str) -> DataFrame | None:
        """Returns `PLACE`, `ITEM`, `TOMBSTONE_KEY`, `OWN_KEYS` and `REFERENCES` of a table's rows."""

    def values(self, table: str, columns: Collection[str], rows: DataFrame) -> DataFrame | None:
        """Returns `REQUEST`, `COLUMN`, `KIND` and `VALUE` of the values that these columns have in found `rows`; None
        if there are none, or they all come from rows of another place."""


class Record(Enum):
    """When the removal from a place gets an entry in the ledger."""

    UNLESS_REPEATED = auto()
    """If something was removed or requests are new; the entry holds a hash of the counts."""
    ALWAYS = auto()
    """In each run, without a hash."""
    NEVER = auto()
    """Not in this run: nothing was due, or the place has to be looked at again."""


@dataclass(frozen=True)
class Removed:
    """What one run did to a place. `counts`: kind → number of what was removed; None if there is nothing to report.
    `then`: called once the removal is recorded. `remain_until`: when the bytes that are left may be removed."""

    counts: Mapping[str, int] | None
    record: Record = Record.UNLESS_REPEATED
    then: Callable[[], None] = lambda: None
    remain_until: datetime | None = None


@dataclass(frozen=True)
class ErasurePlace:
    """An entry of the register. Every part has to be given; None says that the place has none.

    `name`: as in the ledger; a certificate requires an entry of it for each request.
    `find`: returns `PLACE`, `ITEM` and `REQUEST` of what the place holds of found rows. None: it isn't counted.
    `remove`: removes everything of all requests that is there now, so that a run after a crash completes it.
    `folders`: Delta tables that hold rows of the given source tables. Removal rewrites them; their old files are
    deleted later, and they are vacuumed.
    `outside`: where else its bytes are: URIs or services, as a scan names them.
    `references`: rows that lead a search on, if it has such.
    `is_used`: whether a pipeline has the place."""

    name: str
    find: Callable[[FoundRows], DataFrame | None] | None
    remove: Callable[[RemovalRun], Removed]
    folders: Callable[[SparkSession, Pipeline, Sequence[str]], Iterable[str]] | None
    outside: Callable[[Pipeline], Iterable[str]] | None
    references: Callable[[ErasureContext], KeyReferences] | None = None
    is_used: Callable[[Pipeline], bool] = lambda _: True


def per_table(
    *paths: Callable[[Lakehouse, str, str], str],
) -> Callable[[SparkSession, Pipeline, Sequence[str]], Iterable[str]]:
    """Returns the `folders` of a place that has these tables for each source table."""
    return lambda _, pipeline, tables: [path(pipeline.layout, pipeline.name, t) for t in tables for path in paths]
