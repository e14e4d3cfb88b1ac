"""The topics of signals, notifications and resyncs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ingest.config import SourceSettings

KAFKA = {"bootstrap.servers": "broker:9092"}


def source(**settings: Any) -> SourceSettings:
    return SourceSettings.model_validate({"kafka": KAFKA} | settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"topic_pattern": r"shop\.public\..*"},
        {"topic_pattern": r"shop[.]public[.].*"},
        {"topics": ["shop.public.orders", "shop.public.lines"]},
        {"topics": ["orders"], "debezium": {"topic.prefix": "shop"}},
    ],
)
def test_names_follow_from_the_prefix(settings: dict[str, Any]) -> None:
    found = source(**settings).control_topics
    assert found is not None
    names = (found.prefix, found.signals, found.notifications, found.resyncs)
    assert names == ("shop", "shop-signal", "shop-notifications", "shop-resync")


@pytest.mark.parametrize("settings", [{"topics": ["orders"]}, {"topics": ["a.b.c", "d.e.f"]}, {"topic_pattern": ".*"}])
def test_no_names_without_a_prefix(settings: dict[str, Any]) -> None:
    assert source(**settings).control_topics is None


def test_file_names_the_topics() -> None:
    debezium = {"signal.kafka.topic": "signals", "notification.sink.topic.name": "notices"}
    found = source(topics=["shop.public.orders"], debezium=debezium, resync_topic="again").control_topics
    assert found is not None
    assert (found.signals, found.notifications, found.resyncs) == ("signals", "notices", "again")


def test_pattern_leaves_the_control_topics_out() -> None:
    pattern = source(topic_pattern="shop.*|stock", debezium={"topic.prefix": "shop"}).changelog_pattern
    assert pattern is not None
    for topic in ("shop-signal", "shop-notifications", "shop-resync"):
        assert not re.fullmatch(pattern, topic)
    for topic in ("shop.public.orders", "shop-signals", "shop-resync.public.orders", "stock"):
        assert re.fullmatch(pattern, topic)
