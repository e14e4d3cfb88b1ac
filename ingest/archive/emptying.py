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

from ingest.archive.manifest import OBJECT, ArchivedObject, Manifest, objects_folder
from ingest.archive.manifest_archive import REMEDY, open_object
from ingest.archive.record_lookup import locate_records
from ingest.archive.store import ObjectInfo, ObjectStore
from ingest.archive.writing import ObjectFile
from ingest.changelog.envelope import CAPTURED, CONTROL, ERASED, RECORD
from ingest.changelog.origin import ORIGIN, UNNAMED
from ingest.changelog.position import POSITION
from ingest.errors import ChangelogUnusable
from ingest.spark.arrow_tasks import cogroup_in_arrow
from ingest.spark.local_rows import local_rows

_MANIFEST = T.StructField("manifest", T.StringType(), False)
_OBJECT_OF_MANIFEST = T.StructType([*OBJECT.fields, _MANIFEST])
_REWRITTEN = T.StructType(
    [*OBJECT.fields, T.StructField("replaced", T.StringType(), False), T.StructField("emptied", T.LongType(), False)]
)
_RECORDS, _CAPTURED = (to_arrow_schema(rows, timezone="UTC") for rows in (RECORD, CAPTURED))
_EMPTY_FIELDS = {"op": CONTROL, "wrapped": False, "ends_snapshot": False, ORIGIN: UNNAMED} | dict.fromkeys(
    ("source_table", "source_ts", "schema_id", "problem", "progress")
)
"""The parsed columns of an emptied record, besides its position."""
_EMPTY_POSITION = dict.fromkeys(POSITION.names, 0) | {"streamed": 1}
_REWRITTEN_ROWS = to_arrow_schema(_REWRITTEN)


@dataclass(frozen=True)
class RewrittenObject:
    """`replaced`: the key of the old object. `now`: the new one. `emptied`: how many of its records were emptied."""

    replaced: str
    emptied: int
    now: ArchivedObject


def rewrite_objects(
    spark: SparkSession,
    store: ObjectStore,
    pipeline: str,
    manifests: Sequence[tuple[ObjectInfo, Manifest]],
    coordinates: DataFrame,
) -> list[RewrittenObject]:
    """Writes a new object for each one that holds records of `coordinates` (`topic`, `partition`, `offset`, `request`)
    that are not empty yet, and returns the pairs of old and new. The manifests still name the old ones.

    Raises ChangelogUnusable, in Spark's tasks, where an object differs from its manifest."""
    rows = [asdict(o) | {"manifest": info.etag} for info, manifest in manifests for o in manifest.objects]
    objects = local_rows(spark, rows, _OBJECT_OF_MANIFEST)
    folder = objects_folder(pipeline)

    def rewrite(erased: pa.Table, listed: pa.Table) -> pa.Table:
        if not erased.num_rows:
            return _REWRITTEN_ROWS.empty_table()
        (fields,) = listed.to_pylist()
        manifest = fields.pop("manifest")
        rewritten = _rewrite_object(store, folder, ArchivedObject(**fields), manifest, erased)
        return pa.Table.from_pylist(rewritten, schema=_REWRITTEN_ROWS)

    erased = locate_records(objects, coordinates).groupBy("key")
    found = cogroup_in_arrow(erased, objects.groupBy("key"), rewrite, _REWRITTEN).collect()  # a row per object
    return [_from_row(row.asDict()) for row in found]


def _from_row(row: dict[str, Any]) -> RewrittenObject:
    return RewrittenObject(row.pop("replaced"), row.pop("emptied"), ArchivedObject(**row))


def _rewrite_object(
    store: ObjectStore, folder: str, old: ArchivedObject, manifest: str, erased: pa.Table
) -> list[dict[str, Any]]:
    """Returns a list of one `_REWRITTEN` row; an empty list where every record is empty already."""
    records, damage = open_object(store, old)
    if records is None:
        raise ChangelogUnusable(f"{old.key} in the archive {damage}; it held {old.description}", REMEDY)
    # A record that several requests name is marked with the least of them, so that a repeated run writes the same.
    requests = erased.group_by("offset", use_threads=False).aggregate([("request", "min")]).combine_chunks()
    # The manifest's ETag enters the object's hash and so its name: once the manifest is replaced, no run writes this
    # name.
    row_schema = _CAPTURED if "op" in records.column_names else _RECORDS
    # Objects that are older than the origin columns lack them.
    fields = [field for field in row_schema if field.name in records.column_names]
    schema = pa.schema(fields).with_metadata({b"ingest.manifest": manifest.encode()})
    file, total = ObjectFile(old.topic, old.partition, schema), 0
    for batch in records.select(schema.names).cast(schema).to_batches():
        now, count = empty_records(batch, requests)
        file.add(now)
        total += count
    if not total:
        return []
    new = file.upload(store, folder)
    # Verify the new object before the old one is removed for good.
    _, damage = open_object(store, new)
    if damage is not None:
        raise ChangelogUnusable(
            f"{new.key} in the archive {damage}; it should have replaced {old.key}, which is unchanged",
            "remove the first of them, which no manifest names, and run the same command again",
        )
    return [asdict(new) | {"replaced": old.key, "emptied": total}]


def empty_records(records: pa.RecordBatch, requests: pa.Table) -> tuple[pa.RecordBatch, int]:
    """Returns `records` (`RECORD` or `CAPTURED` rows) with those at an `offset` of `requests` (one row each, with
    `request_min`) emptied: key and value null, one header that names the request. And how many were not empty
    before."""
    at = pc.index_in(records.column("offset"), value_set=requests.column("offset").combine_chunks())
    is_erased = pc.and_not(pc.is_valid(at), _is_empty(records))
    count = pc.sum(is_erased, min_count=0).as_py()
    if not count:
        return records, 0
    headers = records.column("headers")
    names = pc.take(requests.column("request_min").combine_chunks(), at.filter(is_erased))
    marks = pa.StructArray.from_arrays(
        [pa.repeat(pa.scalar(ERASED), count), names.cast(pa.binary())], fields=list(headers.type.value_type)
    )
    ends = pc.cumulative_sum(is_erased.cast(pa.int32()))
    list_offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    emptied_columns = {
        "headers": pc.if_else(is_erased, pa.ListArray.from_arrays(list_offsets, marks, type=headers.type), headers),
        "key": pc.if_else(is_erased, None, records.column("key")),
        "value": pc.if_else(is_erased, None, records.column("value")),
    }
    column_names = records.schema.names
    if "op" in column_names:
        emptied_columns |= {
            name: _replace_where(is_erased, value, records.column(name))
            for name, value in _EMPTY_FIELDS.items()
            if name in column_names
        }
        emptied_columns["position"] = _transport_order_only(is_erased, records.column("position"))
    columns = [emptied_columns.get(name, records.column(name)) for name in column_names]
    return pa.RecordBatch.from_arrays(columns, schema=records.schema), count


def _replace_where(mask: pa.BooleanArray, value: Any, column: pa.Array) -> pa.Array:
    return pc.if_else(mask, pa.scalar(value, column.type), column)


def _transport_order_only(is_erased: pa.BooleanArray, positions: pa.StructArray) -> pa.StructArray:
    """Returns the positions; for `is_erased` rows only their offset and partition remain."""
    parts = {field.name: positions.field(field.name) for field in positions.type}
    transport = ("offset", "partition")
    now = [
        part if name in transport else _replace_where(is_erased, _EMPTY_POSITION[name], part)
        for name, part in parts.items()
    ]
    return pa.StructArray.from_arrays(now, fields=list(positions.type))


def _is_empty(records: pa.RecordBatch) -> pa.BooleanArray:
    """Returns a mask of the records that an erasure has emptied."""
    headers = records.column("headers")
    one_header = pc.equal(pc.fill_null(pc.list_value_length(headers), 0), 1)
    has_no_content = pc.and_(pc.is_null(records.column("key")), pc.is_null(records.column("value")))
    is_candidate = pc.and_(has_no_content, one_header)
    keys = headers.filter(is_candidate).flatten().field("key")
    return pc.replace_with_mask(is_candidate, is_candidate, pc.fill_null(pc.equal(keys, ERASED), False))
