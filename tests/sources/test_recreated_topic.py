"""A topic that is deleted and created again: its offsets restart, and are not taken for those of the old topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ingest.errors import SourceRefused
from ingest.stack import Stack
from tests.topic_shop import Shop

pytestmark = [pytest.mark.integration, pytest.mark.long]


def test_recreated_topic_is_detected_even_if_longer(tmp_path: Path, stack: Stack, spark: SparkSession) -> None:
    shop = Shop(spark, stack.kafka.bootstrap_servers, tmp_path)
    log = shop.log
    shop.send(log.change("c", 10, {"id": 1, "v": "a"}))
    shop.send(log.change("u", 20, {"id": 1, "v": "b"}))
    shop.recreate()
    shop.produce(
        *(log.change("u", 30 + i, {"id": 1, "v": str(i)}) for i in range(3)),
    )
    with pytest.raises(SourceRefused, match="deleted and created again"):
        shop.run()
    assert shop.rows() == [(1, "b")], "nothing of it is captured"
    shop.run(recreated_topics="ignore")
    assert shop.rows() == [(1, "2")]
    shop.send(log.change("u", 40, {"id": 1, "v": "c"}))
    assert shop.rows() == [(1, "c")], "by now it is the one that bronze holds"
