"""The life of a key: each state that its row was in, from when until when. A table of these is an SCD of type 2.

The facts of a key in the order of their positions are its story: an image begins a version, which the next image or
delete ends. What a partial image lacks comes from the facts before it, back to the last delete, by the rules of
`joining`, which knows the newest state alone. A version of which a column is not known is left out. An event that comes
late begins, ends or completes the versions that it would have if it had come in time.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ingest.changelog.change import COLUMN_POSITIONS, DELETED, POSITION_COLUMN, SOURCE_TS, quoted
from ingest.changelog.position import comes_again
from ingest.merge.key_changes import known_positions

VALID_FROM, VALID_TO, UNTIL = "_valid_from", "_valid_to", "_until"
"""When the source committed a version and what ended it, and the position of that; null where it still stands."""

_AT, _LIFE, _NEXT = "_at", "_life", "_next"


def versions(facts: DataFrame, key: Sequence[str], columns: Sequence[str], layered: Sequence[str]) -> DataFrame:
    """The versions of keys all of whose facts are given, as `joining.joined` takes them.

    `columns`: those beside the key. `layered`: those of them of which any fact has an entry in `_column_positions`."""
    named = [quoted(k) for k in key]
    own = F.coalesce(F.col(POSITION_COLUMN), F.array_max(known_positions()))
    later = Window.partitionBy(*named).orderBy(F.desc(_AT)).rowsBetween(Window.unboundedPreceding, -1)
    deletes = F.sum(F.col(DELETED).cast("int")).over(Window.partitionBy(*named).orderBy(_AT))
    # What a move carried over has no position: it ends nothing.
    end = F.when(F.col(POSITION_COLUMN).isNotNull(), F.struct(POSITION_COLUMN, SOURCE_TS))
    lived = facts.withColumn(_AT, own)
    lived = lived.withColumns({_NEXT: F.last(end, ignorenulls=True).over(later), _LIFE: deletes})
    life = Window.partitionBy(*named, _LIFE).orderBy(_AT)
    lasting = {name: f"_lasting_{n}" for n, name in enumerate(layered)}
    for name, held in lasting.items():
        brought, before = (F.last(value, ignorenulls=True).over(life) for value in _told(name))
        lived = lived.withColumn(held, F.coalesce(brought, before))
    # What stands where its successor does was sent twice, or held for no time.
    lasts = ~comes_again(F.col(_NEXT)[POSITION_COLUMN], F.col(POSITION_COLUMN))
    complete = ~F.col(DELETED) & F.col(POSITION_COLUMN).isNotNull() & lasts
    if lasting:
        complete = complete & ~F.array_contains(F.array(*(F.col(held).isNull() for held in lasting.values())), True)
    return lived.where(complete).select(
        *named,
        *(F.col(lasting[c])["value"].alias(c) if c in lasting else quoted(c) for c in columns),
        POSITION_COLUMN,
        F.col(_NEXT)[POSITION_COLUMN].alias(UNTIL),
        F.col(SOURCE_TS).alias(VALID_FROM),
        # Where nothing tells when it ended: an end all the same.
        F.when(F.col(_NEXT).isNotNull(), F.coalesce(F.col(_NEXT)[SOURCE_TS], SOURCE_TS)).alias(VALID_TO),
    )


def _told(name: str) -> tuple[Column, Column]:
    """A column's value as a fact brings it, and as an image before it has it; each a struct, or null."""
    older = F.coalesce(F.map_contains_key(COLUMN_POSITIONS, name), F.lit(False))
    value = F.struct(quoted(name).alias("value"))
    brought = F.when(~F.col(DELETED) & ~older, value)
    return brought, F.when(older & F.col(COLUMN_POSITIONS)[name]["before"], value)
