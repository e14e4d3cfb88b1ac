"""A change: what one event means for one key. The table's columns, and beside them these.

| column | what |
|---|---|
| `_deleted` | the key is gone; the other columns are null |
| `_position` | `POSITION` of the event |
| `_column_positions` | null for a whole image; else which columns are older than it, or unknown (`joining`) |
| `_source_ts` | when the source committed it |
| `_event` | topic, partition and offset of its record |
| `_code`, `_reason` | null, or why the event can't be applied |
| `_moved` | the delete of the old key, where an update moved a row to another |
| `_new_key` | of a delete: the key under which the row goes on, a struct of the key's columns (`key_change`) |
| `_moved_to` | the same as a tombstone remembers it: its JSON text |
| `_location` | of a stored row: the name of its file, and its number in it |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.position import POSITION
from ingest.changelog.values.render import IN_FULL

DELETED = "_deleted"
POSITION_COLUMN = "_position"
COLUMN_POSITIONS = "_column_positions"
SOURCE_TS = "_source_ts"
EVENT_ID = "_event"
CODE = "_code"
REASON = "_reason"
MOVED = "_moved"
NEW_KEY = "_new_key"
MOVED_TO = "_moved_to"

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


def content(columns: Sequence[str]) -> Column:
    """What makes two rows the same: a hash of their columns; a column that one lacks is null."""
    return _content(tuple(columns))


@lru_cache(maxsize=512)
def _content(columns: tuple[str, ...]) -> Column:
    told = F.to_json(F.struct(*map(quoted, columns)), IN_FULL | {"ignoreNullFields": "true"})
    return F.unhex(F.sha2(told, 256))


@lru_cache(maxsize=4096)
def quoted(path: str, name: str | None = None) -> Column:
    """A column whose name may hold dots and quotes. With `name`, `path` is `struct.name`."""
    if name is None:
        return F.col("`" + path.replace("`", "``") + "`")
    struct = path[: -len(name) - 1]
    return F.col(struct).getField(name).alias(name)
