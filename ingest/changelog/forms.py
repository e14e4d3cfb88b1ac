"""Rewrites records of other forms to Debezium's JSON, before their envelope is read: bronze holds one form.

| form | value |
|---|---|
| `unwrapped` | a row, as ExtractNewRecordState leaves it, with what it may add: `__op`, `__deleted`, `__lsn`, … |
| `upsert` | a row, as any producer may write it; null deletes the row of the record's key |
| `cloudevents` | Debezium's images in a CloudEvents envelope with attributes `iodebeziumop`, `iodebeziumlsn`, … |

Each may be in Connect's schema and payload. The text of a row stays as it is: to parse it would round numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import StrEnum

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.position import source_type
from ingest.jvm.plain_json import opened


class Form(StrEnum):
    """The form of a topic's records."""

    DEBEZIUM = "debezium"
    UNWRAPPED = "unwrapped"
    UPSERT = "upsert"
    CLOUD_EVENTS = "cloudevents"


FORM_HEADER = "ingest.form"
"""Header of a record that was rewritten. Its value is the form that it had."""
_ENVELOPE_FIELDS = ("op", "before", "after", "source")

_ROWS = (Form.UNWRAPPED, Form.UPSERT)
_ADDED = "__"
"""Default of `add.fields.prefix`."""
_ATTRIBUTE = "iodebezium"
_NOT_IN_ATTRIBUTES = re.compile("[^a-z0-9]")
_SOURCE_FIELDS = {field.name: field.dataType for field in source_type().fields}
_OTHER_FIELDS = (
    *("version", "ts_us", "ts_ns", "txId", "xmin", "origin", "origin_lsn", "server_id", "gtid", "thread", "query"),
    *("scn", "commit_scn", "lcr_position", "rs_id", "ssn", "redo_thread", "redo_sql", "user_name", "row_id"),
    *("start_scn", "start_ts_ms"),
)
"""Fields of the `source` block of any connector that are not read."""
_OF_SOURCE = [name for n in (*_SOURCE_FIELDS, *_OTHER_FIELDS) for name in (n, f"source_{n}")]
_OF_TRANSACTION = [f"transaction_{n}" for n in ("id", "total_order", "data_collection_order")]
_ADDED_NAMES = "|".join(_ADDED + name for name in ("op", "deleted", *_OF_SOURCE, *_OF_TRANSACTION))
_SCALAR = r'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^",{}\[\]\s]+)'
_ADDED_MEMBERS = rf'(?s)(?:,\s*"(?:{_ADDED_NAMES})"\s*:\s*{_SCALAR}\s*)+\}}\s*$'
"""The last members of a row, where ExtractNewRecordState adds them."""
_ADDED_IN_SCHEMA = rf',\s*\{{[^{{}}]*(?:\{{[^{{}}]*\}}[^{{}}]*)?"field"\s*:\s*"(?:{_ADDED_NAMES})"\s*\}}'
_SCHEMA = r'(?s)^\s*\{\s*"schema"\s*:\s*(null|\{.*"type"\s*:\s*"struct".*\})\s*$'


def rewritten(
    is_control: Column, declared: Mapping[str, Form], named: Collection[str] = ()
) -> tuple[dict[str, Column], ...]:
    """Returns successive columns by name, the last of which is `_rewritten`: the `value` and `form` of a record that is
    rewritten, null for all others. They need a `RECORD` and `_json`, its value parsed as an envelope.

    `is_control`: true for records about no row. `declared`: topic → its form. `named`: topics whose table is declared.
    In other topics a row is rewritten only if it names its table (`__table`): it may be anything."""
    return (
        {"_other": F.when(_is_other(is_control, declared), opened(F.col("value"), _type()))},
        {"_body": _body()},
        {"_split": _last_member(F.col("_body"), "payload")},
        {"_parts": _parts()},
        {"_form": _form(declared, named)},
        {"_rewritten": F.when(F.col("_form").isNotNull(), _event())},
    )


def is_row(text: Column) -> Column:
    """Returns true for the text of an object that has members, but none of an envelope."""
    names = F.json_object_keys(text)
    return F.coalesce(
        (F.size(names) > 0) & ~F.arrays_overlap(names, F.array(*map(F.lit, _ENVELOPE_FIELDS))), F.lit(False)
    )


def _is_other(is_control: Column, declared: Mapping[str, Form]) -> Column:
    """Returns true for values that may be of another form: those without an op, and those of topics declared so."""
    json = F.col("_json")
    wanted = F.coalesce(json["op"], json["payload"]["op"]).isNull()
    if declared:
        others = [topic for topic, form in declared.items() if form is not Form.DEBEZIUM]
        wanted = F.col("topic").isin(*others) | (~F.col("topic").isin(*declared) & wanted)
    was_rewritten = F.coalesce(F.array_contains(F.col("headers")["key"], FORM_HEADER), F.lit(False))
    return (
        F.col("value").isNotNull() & wanted & json.isNotNull() & ~was_rewritten & ~F.coalesce(is_control, F.lit(False))
    )


def _type() -> T.StructType:
    """Returns the type by which a value of another form is parsed: what tells its form, its op and its source."""
    added = ["op", "deleted", *_SOURCE_FIELDS, *(f"source_{name}" for name in _SOURCE_FIELDS)]
    members = [T.StructField(f"{_ADDED}{name}", T.StringType()) for name in added]
    attributes = [T.StructField(_attribute(name), T.StringType()) for name in ("op", *_SOURCE_FIELDS)]
    payload = T.StructField("payload", T.StructType(members))
    return T.StructType([*members, *attributes, T.StructField("specversion", T.StringType()), payload])


def _attribute(field: str) -> str:
    """Returns the CloudEvents attribute of a field: names of attributes have no other characters."""
    return _ATTRIBUTE + _NOT_IN_ATTRIBUTES.sub("", field)


def _is_cloud_event() -> Column:
    return F.col("_other.specversion").isNotNull() & F.col(f"_other.{_attribute('op')}").isNotNull()


def _body() -> Column:
    """Returns the text of a value, or that of the `data` of a CloudEvents envelope."""
    text = F.col("value").cast("string")
    return F.when(_is_cloud_event(), _last_member(text, "data")["member"]).when(F.col("_other").isNotNull(), text)


def _parts() -> Column:
    """Returns the texts `schema` and `row` of a body; `schema` is null where it has none. Null for a body that holds
    anything besides schema and payload."""
    body, split = F.col("_body"), F.col("_split")
    schema = F.regexp_extract(split["before"], _SCHEMA, 1)
    inside = F.struct(F.nullif(schema, F.lit("null")).alias("schema"), split["member"].alias("row"))
    alone = F.struct(F.lit(None).cast("string").alias("schema"), body.alias("row"))
    is_wrapped = F.col("_json.schema").isNotNull() & F.col("_json.payload").isNotNull()
    return F.when(schema != "", inside).when(body.isNotNull() & ~is_wrapped, alone)


def _last_member(text: Column, name: str) -> Column:
    """Returns the texts `before` and `member` of an object whose last member has this name; null for others. `before`
    lacks its closing brace."""
    # An escaped quote belongs to a string; every other one before the name of a member begins it.
    pattern = rf'(?s)^(\s*\{{.*?),?\s*(?<!\\)"{name}"\s*:(.*)\}}\s*$'
    before, member = (F.regexp_extract(text, pattern, group) for group in (1, 2))
    # Only a split at the last member gives two texts in JSON.
    is_exact = _is_one(F.concat(before, F.lit("}"))) & _is_one(member)
    return F.when(text.isNotNull() & is_exact, F.struct(before.alias("before"), member.alias("member")))


def _is_one(text: Column) -> Column:
    """Returns true for the text of one value in JSON."""
    return F.coalesce(F.json_array_length(F.concat(F.lit("["), text, F.lit("]"))) == 1, F.lit(False))


def _form(declared: Mapping[str, Form], named: Collection[str]) -> Column:
    """Returns the form of a record that can be rewritten."""
    is_object = F.size(F.json_object_keys("_parts.row")) > 0
    names_table = _any_added("table", "source_table")
    row = (
        F.when(names_table, Form.UNWRAPPED)
        .when(F.col("topic").isin(*named) & _any_added("op", "deleted"), Form.UNWRAPPED)
        .when(F.col("topic").isin(*named), Form.UPSERT)
    )
    form = F.when(_is_cloud_event(), F.when(is_object, Form.CLOUD_EVENTS)).when(
        is_row(F.col("_parts.row")) & F.col("_other.specversion").isNull(), row
    )
    form = F.coalesce(form, F.when(_holds_nothing() & F.col("topic").isin(*named), Form.UPSERT))
    for declared_form in _ROWS:
        topics = [topic for topic, form in declared.items() if form is declared_form]
        if topics:
            form = F.when(F.col("topic").isin(*topics), F.when(is_object | _holds_nothing(), declared_form)).otherwise(
                form
            )
    return form


def _holds_nothing() -> Column:
    """Returns true for a schema without a payload: so JsonConverter writes a null tombstone that has a schema."""
    is_nothing = F.col("_parts.schema").isNotNull() & (F.trim("_parts.row") == "null")
    return F.coalesce(is_nothing, F.lit(False))


def _added(name: str) -> Column:
    """Returns the value of a field that ExtractNewRecordState has added."""
    field = f"{_ADDED}{name}"
    return F.coalesce(f"_other.{field}", f"_other.payload.{field}")


def _any_added(*names: str) -> Column:
    return F.coalesce(*map(_added, names)).isNotNull()


def _event() -> Column:
    """Returns the struct `value`, `form`: Debezium's JSON for the record, null for a null tombstone."""
    form, row, schema = F.col("_form"), F.col("_parts.row"), F.col("_parts.schema")
    is_unwrapped, is_cloud_event = form == Form.UNWRAPPED, form == Form.CLOUD_EVENTS
    is_delete = is_unwrapped & F.coalesce((F.lower(_added("deleted")) == "true") | (_added("op") == "d"), F.lit(False))
    op = (
        F.when(is_cloud_event, F.col(f"_other.{_attribute('op')}"))
        .when(is_delete, "d")
        .when(is_unwrapped, F.coalesce(_added("op"), F.lit("u")))
        .otherwise("u")
    )
    head = F.to_json(F.struct(op.alias("op"), _source(is_unwrapped, is_cloud_event).alias("source")))
    head = F.substring(head, F.lit(1), F.length(head) - 1)
    row = F.when(is_unwrapped, F.regexp_replace(row, _ADDED_MEMBERS, "}")).otherwise(row)
    schema = F.when(is_unwrapped, F.regexp_replace(schema, _ADDED_IN_SCHEMA, "")).otherwise(schema)
    image = F.when(is_delete, "before").otherwise("after")
    rest = F.when(is_cloud_event, _members(row)).otherwise(F.concat(F.lit('"'), image, F.lit('":'), row, F.lit("}")))
    event = F.concat(head, F.lit(","), rest)
    row_schema = F.concat(F.lit('{"type":"struct","fields":[{"field":"after",'), _members(schema), F.lit("]}"))
    wrapped = F.concat(
        F.lit('{"schema":'),
        F.when(is_cloud_event, schema).otherwise(row_schema),
        F.lit(',"payload":'),
        event,
        F.lit("}"),
    )
    value = F.when(~_holds_nothing(), F.coalesce(wrapped, event).cast("binary"))
    return F.struct(value.alias("value"), form.cast("binary").alias("form"))


def _members(text: Column) -> Column:
    """Returns the text of an object without its opening brace."""
    return F.regexp_replace(text, r"^\s*\{", "")


def _source(is_unwrapped: Column, is_cloud_event: Column) -> Column:
    """Returns the `source` block of a record. Without a time of the source it has that of the record."""

    def member(name: str, kind: T.DataType) -> Column:
        added = _added(f"source_{name}") if name == "ts_ms" else F.coalesce(_added(f"source_{name}"), _added(name))
        text = F.when(is_unwrapped, added).when(is_cloud_event, F.col(f"_other.{_attribute(name)}"))
        value = text.try_cast(kind)
        return F.coalesce(value, F.unix_millis("timestamp")) if name == "ts_ms" else value

    return F.struct(*(member(name, kind).alias(name) for name, kind in _SOURCE_FIELDS.items()))
