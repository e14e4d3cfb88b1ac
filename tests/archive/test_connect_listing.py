"""The listing of a sink connector's objects by their names, and the errors for contradictory ones."""

from __future__ import annotations

import pytest

from ingest.archive.connect.listing import ConnectorObject, TopicSelection, list_objects
from ingest.archive.store import ObjectInfo
from ingest.errors import ChangelogUnusable, ConfigError, SourceRefused

SHOP = TopicSelection(pattern=r"shop\..*", tables=frozenset({"public.orders"}))
AT = "shop.public.orders+0+{:010d}"


def objects(connector: str, *names: str, wanted: TopicSelection = SHOP) -> list[ConnectorObject]:
    return list_objects([ObjectInfo(name, 7, "etag") for name in names], connector, wanted)


def test_object_ends_where_the_next_one_begins() -> None:
    first, second = AT.format(0), AT.format(1234567890123)
    found = objects("confluent", f"year=2026/hour=09/{first}.json", f"year=2026/hour=08/{second}.json.gz")
    assert [(o.topic, o.partition, o.first_offset, o.next_offset) for o in found] == [
        ("shop.public.orders", 0, 0, 1234567890123),
        ("shop.public.orders", 0, 1234567890123, -1),
    ]
    assert found[0].description.endswith("topic shop.public.orders, partition 0, offsets 0 to 1234567890122")


def test_keys_headers_and_null_tombstones_are_found() -> None:
    values, deleted = f"partition=0/{AT.format(0)}", f"tombstone/{AT.format(9)}"
    found = objects(
        "confluent", f"{values}.json", f"{values}.keys.json", f"{values}.headers.json", f"{deleted}.keys.json"
    )
    assert [(o.part, o.keys, o.headers) for o in found] == [
        ("values", f"{values}.keys.json", f"{values}.headers.json"),
        ("tombstones", "", ""),
    ]
    assert (found[0].next_offset, found[1].next_offset) == (9, -1)


def test_aiven_objects_may_have_a_file_extension() -> None:
    found = objects("aiven", "2026/shop.a-b-3-40.gz", "shop.a-b-3-00000000000000000007", "shop.a-b-3-50.parquet")
    assert [(o.topic, o.partition, o.first_offset, o.next_offset) for o in found] == [
        ("shop.a-b", 3, 7, 40),
        ("shop.a-b", 3, 40, 50),
        ("shop.a-b", 3, 50, -1),
    ]


def test_other_topics_are_ignored() -> None:
    assert objects("confluent", "other/partition=0/other+0+0000000000.avro") == []
    named = TopicSelection(topics=("shop.a",), tables=frozenset({"a"}))
    (one,) = objects("confluent", "shop.a+0+0000000000.json", "shop.ab+0+0000000000.json", wanted=named)
    assert one.topic == "shop.a"


@pytest.mark.parametrize(
    ("connector", "names", "kind", "problem"),
    [
        ("confluent", ["p/_SUCCESS"], SourceRefused, "p/_SUCCESS in the archive has no name that the sink connector"),
        ("aiven", [f"{AT.format(0)}.json"], SourceRefused, "TOPIC-PARTITION-OFFSET"),
        ("confluent", [f"{AT.format(0)}.avro"], SourceRefused, "is of a format that can't be read"),
        ("confluent", [f"{AT.format(0)}.json", f"{AT.format(0)}.keys.avro"], SourceRefused, "keys.format.class"),
        ("confluent", [f"{AT.format(0)}.keys.json"], SourceRefused, "belongs to values that are missing"),
        ("confluent", [f"{AT.format(0)}.json", f"{AT.format(0)}.json.gz"], SourceRefused, "hold the same records"),
        ("confluent", [f"a/{AT.format(5)}.json", f"b/{AT.format(5)}.json"], ChangelogUnusable, "begin with offset 5"),
        (
            "confluent",
            ["shop.items+0+0000000000.json"],
            ConfigError,
            "the row that a change of topic shop.items concerns is unknown",
        ),
    ],
)
def test_ambiguous_names_are_refused(connector: str, names: list[str], kind: type[Exception], problem: str) -> None:
    with pytest.raises(kind, match=problem):
        objects(connector, *names)


def test_topic_without_keys_needs_a_declared_table_and_key() -> None:
    routed = TopicSelection(pattern=".*", tables=frozenset({"public.orders"}), topic_tables={"all": "public.orders"})
    assert len(objects("confluent", "all+0+0000000000.json", wanted=routed)) == 1
    elsewhere = TopicSelection(
        pattern=".*", tables=frozenset({"public.orders"}), topic_tables={"x.public.orders": "other"}
    )
    with pytest.raises(ConfigError, match=r"x\.public\.orders"):
        objects("confluent", "x.public.orders+0+0000000000.json", wanted=elsewhere)
