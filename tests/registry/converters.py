"""Kafka Connect's own converters, run in the JVM of the tests' session, apart from its classes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from ingest.jvm.jars import jars

AVRO = "io.apicurio.registry.utils.converter.AvroConverter"
EXT_JSON = "io.apicurio.registry.utils.converter.ExtJsonConverter"
Headers = list[tuple[str, bytes]]


class Converters:
    """Encodes JSON with its schema, as JsonConverter writes it, by a converter of a registry."""

    def __init__(self, spark: SparkSession, registry_url: str) -> None:
        context: Any = spark.sparkContext
        self._jvm, gateway = context._jvm, context._gateway
        files = [*jars("converters"), *jars("connect")]
        urls = gateway.new_array(self._jvm.java.net.URL, len(files))
        for number, file in enumerate(files):
            urls[number] = file.as_uri() and self._jvm.java.io.File(str(file)).toURI().toURL()
        platform = self._jvm.java.lang.ClassLoader.getPlatformClassLoader()
        self._loader = self._jvm.java.net.URLClassLoader(urls, platform)
        self._no_classes = gateway.new_array(self._jvm.java.lang.Class, 0)
        self._no_objects = gateway.new_array(self._jvm.java.lang.Object, 0)
        self._registry_url = registry_url
        self._known: dict[Any, Any] = {}

    def _new(self, name: str) -> Any:
        return self._loader.loadClass(name).getDeclaredConstructor(self._no_classes).newInstance(self._no_objects)

    def _converter(self, name: str, settings: Mapping[str, str], is_key: bool) -> Any:
        identity = name, tuple(settings.items()), is_key
        if identity not in self._known:
            thread = self._jvm.java.lang.Thread.currentThread()
            before = thread.getContextClassLoader()
            thread.setContextClassLoader(self._loader)
            try:
                made, properties = self._new(name), self._jvm.java.util.HashMap()
                for key, value in settings.items():
                    properties.put(key, value)
                made.configure(properties, is_key)
                self._known[identity] = made
            finally:
                thread.setContextClassLoader(before)
        return self._known[identity]

    def encode(
        self, converter: str, settings: Mapping[str, str], topic: str, document: Any, is_key: bool = False
    ) -> tuple[bytes, Headers]:
        """Returns the bytes of a document `{schema, payload}`, and the headers that the converter adds."""
        reading = {"schemas.enable": "true", "replace.null.with.default": "false"}
        read = self._converter("org.apache.kafka.connect.json.JsonConverter", reading, is_key).toConnectData(
            topic, json.dumps(document).encode()
        )
        common = {"apicurio.registry.url": self._registry_url, "apicurio.registry.auto-register": "true"}
        writer = self._converter(converter, common | dict(settings), is_key)
        if settings.get("apicurio.registry.headers.enabled") == "false":
            return bytes(writer.fromConnectData(topic, read.schema(), read.value())), []
        headers = self._new("org.apache.kafka.common.header.internals.RecordHeaders")
        data = bytes(writer.fromConnectData(topic, headers, read.schema(), read.value()))
        return data, [(header.key(), bytes(header.value())) for header in headers.toArray()]
