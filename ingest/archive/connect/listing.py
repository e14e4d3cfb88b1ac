"""Lists a sink connector's objects and the offsets that they hold, as far as their names tell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from ingest.archive.connect.names import ObjectName, parse_name
from ingest.archive.layout import StoredObject
from ingest.archive.store import ObjectInfo
from ingest.errors import ChangelogUnusable, ConfigError, SourceRefused

_LINES = (".json", ".json.gz")


@dataclass(frozen=True)
class ConnectorObject(StoredObject):
    """An object of a sink connector.

    Attributes:
        next_offset: the first offset of the topic partition's next object; -1 for the last object.
        etag: of its content.
        part: "values", or "tombstones": keys without values.
        keys, headers: the keys of the objects that hold these parts of its records; empty where there are none.
    """

    next_offset: int
    etag: str
    part: str
    keys: str
    headers: str


@dataclass(frozen=True)
class TopicSelection:
    """The topics that a pipeline reads: `topics`, or those whose whole name matches `pattern`. `tables`: tables whose
    key the pipeline file declares. `topic_tables`: topic → table."""

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    tables: frozenset[str] = frozenset()
    topic_tables: Mapping[str, str] | None = None

    def includes(self, topic: str) -> bool:
        return topic in self.topics if self.topics is not None else bool(re.fullmatch(self.pattern or "", topic))

    def declares_key(self, topic: str) -> bool:
        """Returns True if the pipeline file declares the key of the topic's table."""
        table = (self.topic_tables or {}).get(topic)
        return table in self.tables if table else any(topic == t or topic.endswith(f".{t}") for t in self.tables)


def list_objects(listed: Iterable[ObjectInfo], connector: str, selection: TopicSelection) -> list[ConnectorObject]:
    """Returns the objects of the wanted topics by topic, partition and offset. The end of a partition's last object is
    unknown; it is set to its first offset.

    Raises SourceRefused, ConfigError and ChangelogUnusable for names that can't be parsed or contradict each other, and
    for formats or missing parts that can't be read."""
    parts = _parts(listed, connector, selection)
    found = sorted(_objects(parts), key=lambda o: (o.topic, o.partition, o.first_offset))
    if connector == "confluent":
        _require_keys(found, selection)
    return [one for _, run in groupby(found, key=lambda o: (o.topic, o.partition)) for one in _in_sequence(list(run))]


def _parts(
    listed: Iterable[ObjectInfo], connector: str, selection: TopicSelection
) -> dict[str, dict[str, tuple[ObjectName, ObjectInfo]]]:
    """Returns stem of the name → part → its name and object."""
    found: dict[str, dict[str, tuple[ObjectName, ObjectInfo]]] = {}
    for one in listed:
        if not one.size and not one.key.rpartition("/")[2]:
            continue  # a folder marker
        name = parse_name(one.key, connector)
        if not selection.includes(name.topic):
            continue
        _require_readable(one.key, name, connector)
        same = found.setdefault(name.stem, {})
        if name.part in same:
            raise SourceRefused(
                f"{one.key} and {same[name.part][1].key} in the archive hold the same records",
                "keep the one that the connector wrote last",
            )
        same[name.part] = (name, one)
    return found


def _require_readable(key: str, name: ObjectName, connector: str) -> None:
    lines_only = name.part != "values"
    if connector == "aiven" or name.format in _LINES or (name.format.endswith(".parquet") and not lines_only):
        return
    what = f"{name.part}.format.class" if lines_only else "format.class"
    formats = "JsonFormat" if lines_only else "JsonFormat or ParquetFormat"
    raise SourceRefused(
        f"{key} in the archive is of a format that can't be read",
        f"let the connector write {formats} ({what}) and its topics again from their beginning",
    )


def _objects(parts: Mapping[str, Mapping[str, tuple[ObjectName, ObjectInfo]]]) -> Iterator[ConnectorObject]:
    for same in parts.values():
        part = "values" if "values" in same else "tombstones"
        if part not in same:
            one = next(iter(same.values()))[1]
            raise SourceRefused(
                f"{one.key} in the archive belongs to values that are missing",
                "restore the object from a version or a copy of the bucket; null tombstones are looked for in a folder "
                "of the name tombstone",
            )
        name, one = same[part]
        keys, headers = (same[p][1].key if p in same else "" for p in ("keys", "headers"))
        place = (name.topic, name.partition, name.first_offset, name.first_offset, 1, one.size)
        yield ConnectorObject(one.key, *place, -1, one.etag, part, keys, headers)


def _in_sequence(run: Sequence[ConnectorObject]) -> Iterator[ConnectorObject]:
    """Yields the objects of one topic partition, each with its end: the next one's first offset."""
    for one, after in pairwise(run):
        if one.first_offset == after.first_offset:
            raise ChangelogUnusable(
                f"{one.key} and {after.key} in the archive both begin with offset {one.first_offset} of topic "
                f"{one.topic}, partition {one.partition}",
                "keep one of them: a topic that was created again needs an archive and a pipeline of its own",
            )
        yield with_end(one, after.first_offset - 1, after.first_offset)
    yield from run[-1:]


def with_end(one: ConnectorObject, last_offset: int, next_offset: int = -1) -> ConnectorObject:
    """Returns the object with its last offset and its number of offsets."""
    known = vars(one) | {"last_offset": last_offset, "next_offset": next_offset}
    return ConnectorObject(**known | {"records": last_offset - one.first_offset + 1})


def _require_keys(objects: Iterable[ConnectorObject], selection: TopicSelection) -> None:
    """Raises ConfigError for values without keys whose table has no declared key: the table would be keyless here and
    keyed in the stream."""
    without = (o for o in objects if o.part == "values" and not o.keys and not selection.declares_key(o.topic))
    one = next(without, None)
    if one is not None:
        raise ConfigError(
            f"the archive holds no keys for {one.key}: the row that a change of topic {one.topic} concerns is unknown",
            "name the table's key (tables: {TABLE: {primary_key: [...]}}), and the table too where the topic's name "
            "doesn't end with it (source: {topic_tables: {TOPIC: TABLE}}); or let the connector write keys "
            "(store.kafka.keys=true, keys.format.class=...JsonFormat)",
        )
