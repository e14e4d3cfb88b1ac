"""Rewrites objects that hold erased records: of such a record only its offset, its partition and its time stay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from ingest.archive.locating import located
from ingest.archive.manifest import OBJECT, ArchivedObject, Manifest, objects_folder
from ingest.archive.manifested import REMEDY, opened
from ingest.archive.store import Listed, ObjectStore
from ingest.archive.writing import ObjectFile
from ingest.changelog.envelope import CAPTURED, CONTROL, ERASED, RECORD
from ingest.changelog.origin import ORIGIN, UNNAMED
from ingest.changelog.position import POSITION
from ingest.errors import ChangelogUnusable
from ingest.spark.arrow_tasks import cogroup_in_arrow
from ingest.spark.local_rows import local_rows

_MANIFEST = T.StructField("manifest", T.StringType(), False)
_KEPT = T.StructType([*OBJECT.fields, _MANIFEST])
_REWRITTEN = T.StructType(
    [*OBJECT.fields, T.StructField("replaced", T.StringType(), False), T.StructField("emptied", T.LongType(), False)]
)
_RECORDS, _CAPTURED = (to_arrow_schema(rows, timezone="UTC") for rows in (RECORD, CAPTURED))
_READ_AS = {"op": CONTROL, "wrapped": False, "ends_snapshot": False, ORIGIN: UNNAMED} | dict.fromkeys(
    ("source_table", "source_ts", "schema_id", "problem", "progress")
)
"""The parsed columns of an emptied record, besides its position."""
_UNPLACED = dict.fromkeys(POSITION.names, 0) | {"streamed": 1}
_REWRITTEN_ROWS = to_arrow_schema(_REWRITTEN)


@dataclass(frozen=True)
class Rewritten:
    """`replaced`: the key of the old object. `now`: the new one. `emptied`: how many of its records were emptied."""

    replaced: str
    emptied: int
    now: ArchivedObject


def rewritten(
    spark: SparkSession,
    store: ObjectStore,
    pipeline: str,
    kept: Sequence[tuple[Listed, Manifest]],
    coordinates: DataFrame,
) -> list[Rewritten]:
    """Writes a new object for each one that holds records of `coordinates` (`topic`, `partition`, `offset`, `request`)
    that are not empty yet, and returns the pairs of old and new. The manifests still name the old ones.

    Raises ChangelogUnusable, in Spark's tasks, where an object differs from its manifest."""
    objects = local_rows(spark, [asdict(o) | {"manifest": m.etag} for m, said in kept for o in said.objects], _KEPT)
    folder = objects_folder(pipeline)

    def write(asked: pa.Table, listed: pa.Table) -> pa.Table:
        if not asked.num_rows:
            return _REWRITTEN_ROWS.empty_table()
        (said,) = listed.to_pylist()
        manifest = said.pop("manifest")
        done = _written(store, folder, ArchivedObject(**said), manifest, asked)
        return pa.Table.from_pylist(done, schema=_REWRITTEN_ROWS)

    asked = located(objects, coordinates).groupBy("key")
    rows = cogroup_in_arrow(asked, objects.groupBy("key"), write, _REWRITTEN).collect()  # a row per object
    return [_told(row.asDict()) for row in rows]


def _told(row: dict[str, Any]) -> Rewritten:
    return Rewritten(row.pop("replaced"), row.pop("emptied"), ArchivedObject(**row))


def _written(
    store: ObjectStore, folder: str, old: ArchivedObject, manifest: str, asked: pa.Table
) -> list[dict[str, Any]]:
    """Returns a list of one `_REWRITTEN` row; an empty list where every record is empty already."""
    records, damage = opened(store, old)
    if records is None:
        raise ChangelogUnusable(f"{old.key} in the archive {damage}; it held {old.told}", REMEDY)
    # A record that several requests name is marked with the least of them, so that a repeated run writes the same.
    requests = asked.group_by("offset", use_threads=False).aggregate([("request", "min")]).combine_chunks()
    # The manifest's ETag enters the object's hash and so its name: once the manifest is replaced, no run writes this
    # name.
    held = _CAPTURED if "op" in records.column_names else _RECORDS
    # Objects that are older than the origin columns lack them.
    fields = [field for field in held if field.name in records.column_names]
    schema = pa.schema(fields).with_metadata({b"ingest.manifest": manifest.encode()})
    file, many = ObjectFile(old.topic, old.partition, schema), 0
    for batch in records.select(schema.names).cast(schema).to_batches():
        now, count = emptied(batch, requests)
        file.add(now)
        many += count
    if not many:
        return []
    new = file.stored(store, folder)
    # Verify the new object before the old one is removed for good.
    _, damage = opened(store, new)
    if damage is not None:
        raise ChangelogUnusable(
            f"{new.key} in the archive {damage}; it was to take the place of {old.key}, which is as it was",
            "remove the first of them, which no manifest names, and run the same again",
        )
    return [asdict(new) | {"replaced": old.key, "emptied": many}]


def emptied(records: pa.RecordBatch, requests: pa.Table) -> tuple[pa.RecordBatch, int]:
    """Returns `records` (`RECORD` or `CAPTURED` rows) with those at an `offset` of `requests` (one row each, with
    `request_min`) emptied: key and value null, one header that names the request. And how many were not empty
    before."""
    at = pc.index_in(records.column("offset"), value_set=requests.column("offset").combine_chunks())
    going = pc.and_not(pc.is_valid(at), _empty(records))
    many = pc.sum(going, min_count=0).as_py()
    if not many:
        return records, 0
    headers = records.column("headers")
    names = pc.take(requests.column("request_min").combine_chunks(), at.filter(going))
    said = pa.StructArray.from_arrays(
        [pa.repeat(pa.scalar(ERASED), many), names.cast(pa.binary())], fields=list(headers.type.value_type)
    )
    ends = pc.cumulative_sum(going.cast(pa.int32()))
    begins = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    left = {
        "headers": pc.if_else(going, pa.ListArray.from_arrays(begins, said, type=headers.type), headers),
        "key": pc.if_else(going, None, records.column("key")),
        "value": pc.if_else(going, None, records.column("value")),
    }
    there = records.schema.names
    if "op" in there:
        left |= {name: _if_going(going, said, records.column(name)) for name, said in _READ_AS.items() if name in there}
        left["position"] = _without_place(going, records.column("position"))
    columns = [left.get(name, records.column(name)) for name in records.schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=records.schema), many


def _if_going(going: pa.BooleanArray, said: Any, column: pa.Array) -> pa.Array:
    return pc.if_else(going, pa.scalar(said, column.type), column)


def _without_place(going: pa.BooleanArray, positions: pa.StructArray) -> pa.StructArray:
    """Returns the positions; for `going` rows only their offset and partition remain."""
    parts = {field.name: positions.field(field.name) for field in positions.type}
    kept = ("offset", "partition")
    now = [part if name in kept else _if_going(going, _UNPLACED[name], part) for name, part in parts.items()]
    return pa.StructArray.from_arrays(now, fields=list(positions.type))


def _empty(records: pa.RecordBatch) -> pa.BooleanArray:
    """Returns a mask of the records that an erasure has emptied."""
    headers = records.column("headers")
    one_header = pc.equal(pc.fill_null(pc.list_value_length(headers), 0), 1)
    silent = pc.and_(pc.is_null(records.column("key")), pc.is_null(records.column("value")))
    may = pc.and_(silent, one_header)
    keys = headers.filter(may).flatten().field("key")
    return pc.replace_with_mask(may, may, pc.fill_null(pc.equal(keys, ERASED), False))
