"""Risks of a connector's converters. Source: Kafka's `JsonConverterConfig`, and `Worker.startTask`."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.connector.recipe import JSON_CONVERTER
from ingest.connector.risk import Configuration, Risk

_SHORT = {"JsonConverter", JSON_CONVERTER}
_FORMATS = {
    "io.debezium.converters.CloudEventsConverter": "CloudEvents",
    "io.confluent.connect.avro.AvroConverter": "Avro with a schema registry",
    "io.confluent.connect.protobuf.ProtobufConverter": "Protobuf with a schema registry",
    "io.confluent.connect.json.JsonSchemaConverter": "JSON with a schema registry's frame",
    "io.apicurio.registry.utils.converter.AvroConverter": "Avro with a schema registry",
}


def converter_risks(config: Configuration) -> Iterator[Risk]:
    """Yields the risks of the converters of keys and values."""
    for part in ("key", "value"):
        converter = config.get(f"{part}.converter", "")
        if not converter:
            yield _of_the_worker(config, part)
        elif converter not in _SHORT:
            written = _FORMATS.get(converter, "another format than JSON")
            remedy = f"{part}.converter={JSON_CONVERTER}"
            yield Risk(f"{part}.converter", converter, f"{part}s are {written}: ingest quarantines them", remedy)
        else:
            yield from _of_json(config, part)


def _of_the_worker(config: Configuration, part: str) -> Risk:
    name = f"{part}.converter"
    ignored = sorted(other for other in config if other.startswith(f"{name}."))
    text = (
        "the worker's own converter is used, and Connect's REST interface doesn't show the worker's settings: unless "
        f"{name}.replace.null.with.default=false stands there, NULL becomes the column's default"
    )
    if ignored:
        text += f"; {ignored[0]} has no effect, since the connector doesn't name its converter"
    remedy = f"{name}={JSON_CONVERTER} and {name}.replace.null.with.default=false in the connector's configuration"
    return Risk(name, "(the worker's)", text, remedy)


def _of_json(config: Configuration, part: str) -> Iterator[Risk]:
    name = f"{part}.converter.replace.null.with.default"
    if config.get(name, "true").lower() != "false":
        shown = config.get(name, "true (default)")
        yield Risk(name, shown, "NULL becomes the column's default", f"{name}=false")
    name = f"{part}.converter.schemas.enable"
    if config.get(name, "true").lower() == "false":
        text = "records carry no types: they are read off the values, and a decimal arrives as bytes without its scale"
        remedy = f"{name}=true, or declare the columns in the pipeline's file and accept this setting"
        yield Risk(name, "false", text, remedy, loses=part == "value")
