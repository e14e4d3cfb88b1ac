"""Changes: DataFrames of the effect of one event on one key. The columns of the table, and these system columns.

| column | content |
|---|---|
| `_deleted` | true: the key is deleted; the other columns are null |
| `_position` | `POSITION` of the event |
| `_column_positions` | null for a whole image; else the columns that are older, or unknown (`merge.partial_rows`) |
| `_source_ts` | time of the source's commit |
| `_ingest_event` | topic, partition and offset of the record |
| `_ingest_code`, `_ingest_reason` | why the event can't be applied; null if it can |
| `_ingest_moved` | true: the delete of the old key by an update of the key |
| `_ingest_new_key` | of a delete: the key under which the row continues, a struct of key columns |
| `_ingest_moved_to` | the same in a tombstone, as JSON text |
| `_ingest_location` | of a stored row: its file's name, and its index in the file |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.position import POSITION
from ingest.values.render import LOSSLESS_JSON

DELETED = "_deleted"
POSITION_COLUMN = "_position"
COLUMN_POSITIONS = "_column_positions"
SOURCE_TS = "_source_ts"
EVENT_ID = "_ingest_event"
CODE = "_ingest_code"
REASON = "_ingest_reason"
MOVED = "_ingest_moved"
NEW_KEY = "_ingest_new_key"
MOVED_TO = "_ingest_moved_to"

COLUMN_POSITION = T.StructType(
    [T.StructField("position", POSITION), T.StructField("before", T.BooleanType()), T.StructField("told", POSITION)]
)
EVENT_ID_TYPE = T.StructType(
    [
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
    ]
)
COLUMN_POSITIONS_TYPE = T.MapType(T.StringType(), COLUMN_POSITION)


def column_position(name: str) -> Column:
    """Returns the position of the event that wrote a column of a row: the row's, unless the column has its own."""
    own = F.col(COLUMN_POSITIONS)[name]["position"]
    return F.when(F.map_contains_key(COLUMN_POSITIONS, F.lit(name)), own).otherwise(F.col(POSITION_COLUMN))


def content_hash(columns: Sequence[str]) -> Column:
    """Returns the SHA-256 of `columns`, as binary. Null columns don't count, so a column that is missing equals
    null."""
    return _content_hash(tuple(columns))


@lru_cache(maxsize=512)
def _content_hash(columns: tuple[str, ...]) -> Column:
    text = F.to_json(F.struct(*map(quoted, columns)), LOSSLESS_JSON | {"ignoreNullFields": "true"})
    return F.unhex(F.sha2(text, 256))


@lru_cache(maxsize=4096)
def quoted(path: str, name: str | None = None) -> Column:
    """Returns the column of a name that may hold dots and backquotes. With `name`: the field of that name, where
    `path` is `struct.name`. Cached."""
    if name is None:
        return F.col("`" + path.replace("`", "``") + "`")
    struct = path[: -len(name) - 1]
    return F.col(struct).getField(name).alias(name)
