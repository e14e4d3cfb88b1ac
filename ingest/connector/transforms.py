"""Risks of a connector's single message transforms. Sources: the references of Kafka Connect and Debezium."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.connector.risk import Configuration, Risk

_HARMLESS = {
    "ActivateTracingSpan",
    "DecodeLogicalDecodingMessageContent",
    "DropHeaders",
    "ExtractChangedRecordState",
    "InsertHeader",
    "OpenLineage",
    "SchemaChangeEventFilter",
}
_EFFECTS = {
    "ExtractNewRecordState": "it unwraps rows: what add.fields doesn't add is lost of a change: its kind (op), its "
    "place in the log (lsn, sequence), its table (schema, table)",
    "ExtractNewDocumentState": "it unwraps documents: the kind of a change and its position are lost",
    "Filter": "records that it drops never arrive",
    "ContentBasedRouter": "records may go to topics that the pipeline doesn't read",
    "EventRouter": "rows of the outbox arrive as messages, not as changes of a table",
    "EnforceRecordSize": "records that are too large are cut or left out",
    "ReplaceField": "parts of the envelope are left out or renamed",
    "MaskField": "parts of the envelope are masked",
    "Cast": "values are converted",
    "TimestampConverter": "times are converted",
    "TimezoneConverter": "times are moved to another zone",
    "Flatten": "the envelope is flattened",
    "ExtractField": "one field stands in place of the envelope",
    "HoistField": "the envelope is wrapped",
    "ValueToKey": "keys are made of the values",
}
_ROUTERS = {
    "ByLogicalTableRouter",
    "PartitionRouting",
    "RegexRouter",
    "TimestampRouter",
    "ToLogicalTopicRouter",
}


def transform_risks(config: Configuration) -> Iterator[Risk]:
    """Yields the risks of the transforms, in the order of their application."""
    for alias in filter(None, (part.strip() for part in config.get("transforms", "").split(","))):
        name = f"transforms.{alias}.type"
        full = config.get(name, "")
        kind = full.split("$")[0].rsplit(".", 1)[-1]
        if kind in _HARMLESS:
            continue
        remedy = f"take {alias!r} out of transforms"
        if kind in _EFFECTS:
            yield Risk(name, full, _EFFECTS[kind], remedy)
        elif kind in _ROUTERS:
            text = "records go to other topics than the tables' own: see that the pipeline reads those"
            yield Risk(name, full, text, f"{remedy}, or name its topics in the pipeline's file", loses=False)
        else:
            text = "it is unknown whether this transform changes or drops records"
            yield Risk(name, full, text, f"{remedy}, or check that it doesn't", loses=False)
