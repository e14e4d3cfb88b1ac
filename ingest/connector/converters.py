"""Risks of a connector's converters. Source: Kafka's `JsonConverterConfig`, and `Worker.startTask`; Confluent's
`AvroDataConfig` and `JsonSchemaDataConfig`; Apicurio's `AvroData`, which has no setting for nulls."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.connector.recipe import JSON_CONVERTER
from ingest.connector.risk import Configuration, ReaderSettings, Risk

_SHORT = {"JsonConverter", JSON_CONVERTER}
_FORMATS = {
    "io.debezium.converters.CloudEventsConverter": "CloudEvents",
    "io.confluent.connect.avro.AvroConverter": "Avro with a schema registry",
    "io.confluent.connect.protobuf.ProtobufConverter": "Protobuf with a schema registry",
    "io.confluent.connect.json.JsonSchemaConverter": "JSON with a schema registry's frame",
    "io.apicurio.registry.utils.converter.AvroConverter": "Avro with a schema registry",
    "io.apicurio.registry.utils.converter.ExtJsonConverter": "JSON with an ID of a schema registry",
}
_KEEPS_NULL = "ignore.default.for.nullables"
_OF_CONFLUENT = ("io.confluent.connect.avro.AvroConverter", "io.confluent.connect.json.JsonSchemaConverter")
_AVRO_OF_APICURIO = "io.apicurio.registry.utils.converter.AvroConverter"
_JSON_OF_APICURIO = "io.apicurio.registry.utils.converter.ExtJsonConverter"
_PREFIX_IDS = "apicurio.registry.use-id"


def converter_risks(config: Configuration, reader: ReaderSettings) -> Iterator[Risk]:
    """Yields the risks of the converters of keys and values."""
    for part in ("key", "value"):
        converter = config.get(f"{part}.converter", "")
        if not converter:
            yield _of_the_worker(config, part)
        elif reader.has_registry and converter in (*_OF_CONFLUENT, _AVRO_OF_APICURIO, _JSON_OF_APICURIO):
            yield from _of_a_registry(config, part, converter)
        elif converter not in _SHORT:
            written = _FORMATS.get(converter, "another format than JSON")
            remedy = f"{part}.converter={JSON_CONVERTER}"
            if converter in (*_OF_CONFLUENT, _AVRO_OF_APICURIO, _JSON_OF_APICURIO):
                remedy = f"source: {{registry: {{url: …}}}} in the pipeline's file, or {remedy}"
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


def _of_nulls(config: Configuration, part: str) -> Iterator[Risk]:
    name = f"{part}.converter.replace.null.with.default"
    if config.get(name, "true").lower() != "false":
        shown = config.get(name, "true (default)")
        yield Risk(name, shown, "NULL becomes the column's default", f"{name}=false")


def _of_json(config: Configuration, part: str) -> Iterator[Risk]:
    yield from _of_nulls(config, part)
    name = f"{part}.converter.schemas.enable"
    if config.get(name, "true").lower() == "false":
        text = "records carry no types: they are read off the values, and a decimal arrives as bytes without its scale"
        remedy = f"{name}=true, or declare the columns in the pipeline's file and accept this setting"
        yield Risk(name, "false", text, remedy, loses=part == "value")


def _of_a_registry(config: Configuration, part: str, converter: str) -> Iterator[Risk]:
    name = f"{part}.converter.{_KEEPS_NULL}"
    if converter in _OF_CONFLUENT and config.get(name, "false").lower() != "true":
        shown = config.get(name, "false (default)")
        yield Risk(name, shown, "NULL becomes the column's default", f"{name}=true")
    if converter == _JSON_OF_APICURIO:
        yield from _of_nulls(config, part)
    if converter == _AVRO_OF_APICURIO:
        text = "NULL becomes the column's default, which no setting of this converter prevents"
        remedy = (
            f"Confluent's converter, or {part}.converter={JSON_CONVERTER}; or accept it, if no column has a default"
        )
        yield Risk(f"{part}.converter", converter, text, remedy, loses=part == "value")
    is_short = config.get(f"{part}.converter.apicurio.registry.as-confluent", "false").lower() == "true"
    name = f"{part}.converter.{_PREFIX_IDS}"
    if converter == _AVRO_OF_APICURIO and is_short and config.get(name) != "contentId":
        text = "the IDs are not those of Confluent's interface, by which ingest finds the schemas"
        remedy = f"{name}=contentId, or source: {{registry: {{prefix_ids: global}}}} in the pipeline's file"
        yield Risk(name, config.get(name, "globalId (default)"), text, remedy, loses=False)
