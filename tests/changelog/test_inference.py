"""What the shape of a batch's images says of its columns."""

from __future__ import annotations

import pytest

from ingest.changelog.connect_schema import declared
from ingest.changelog.inference import vouched

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


@pytest.mark.parametrize(
    ("seen", "read_as", "proven"),
    [
        ("BIGINT", "int64", True),
        ("BIGINT", "int32", False),
        ("BIGINT", "timestamp_from_micros", True),
        ("BIGINT", "float64", False),
        ("BOOLEAN", "boolean", True),
        ("BIGINT", "boolean_from_int", False),
        ("DECIMAL(15,2)", "float64", True),
        ("DECIMAL(16,2)", "float64", False),
        ("DECIMAL(6,2)", "float32", False),
        ("DECIMAL(6,2)", "decimal(10,2)", False),
        ("DOUBLE", "float64", False),
        ("STRING", "date", False),
        ("VOID", "int64", False),
    ],
)
def test_a_column_is_plain_where_every_value_was_seen_to_be_of_its_type(seen: str, read_as: str, proven: bool) -> None:
    columns = (declared("v", read_as), declared("elsewhere", "int64"))
    assert vouched(columns, f"OBJECT<id: BIGINT, v: {seen}>") == ({"v"} if proven else frozenset())


def test_without_a_shape_nothing_is_plain() -> None:
    assert vouched((declared("v", "int64"),), None) == frozenset()
