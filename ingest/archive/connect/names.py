"""Parses the names of sink connectors' objects."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ingest.errors import SourceRefused

_CONFLUENT = re.compile(r"(?P<topic>.+)\+(?P<partition>\d+)\+(?P<first>\d+)(?P<part>\.keys|\.headers)?(?P<format>\..+)")
_AIVEN = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)-(?P<first>\d+)(?P<part>)(?P<format>\.[a-z0-9.]+)?")
_NAMES = {
    "confluent": (_CONFLUENT, "TOPIC+PARTITION+OFFSET.json, .json.gz or .parquet"),
    "aiven": (_AIVEN, "TOPIC-PARTITION-OFFSET, with or without an ending"),
}
_TOMBSTONES = "tombstone"
"""The default of the connector's `tombstone.encoded.partition`."""


@dataclass(frozen=True)
class ObjectName:
    """A parsed name.

    Attributes:
        part: the part of its records that the object holds: values (for Aiven, all), keys, headers or tombstones.
        stem: the name that all parts of the same records share.
        format: the name's ending, such as .json.gz.
    """

    topic: str
    partition: int
    first_offset: int
    part: str
    stem: str
    format: str


def parse_name(key: str, connector: str) -> ObjectName:
    """Returns the parsed name of an object key. Raises SourceRefused for a name that the connector doesn't give."""
    folder, _, name = key.rpartition("/")
    pattern, form = _NAMES[connector]
    found = pattern.fullmatch(name)
    if found is None:
        raise SourceRefused(
            f"{key} in the archive has no name that the sink connector of {connector} gives: {form}",
            "let the archive's uri name a folder below which nothing but the connector's objects lies",
        )
    part = (found["part"] or ".values")[1:]
    if part == "keys" and folder.rpartition("/")[2] == _TOMBSTONES:
        part = "tombstones"
    stem = f"{folder}/{found['topic']}+{found['partition']}+{found['first']}"
    return ObjectName(found["topic"], int(found["partition"]), int(found["first"]), part, stem, found["format"] or "")
