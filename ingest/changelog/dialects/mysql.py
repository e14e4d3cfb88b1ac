"""MySQL and MariaDB: events are ordered by their place in the binlog. Each row has one of its own.

| field | value |
|---|---|
| major | number of the file |
| minor | pos |
| ordinal | row |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.changelog.dialects.dialect import Dialect, LogEnd, Place, PositionText

_POSITION = re.compile(r"[\w.-]*?(\d+):(\d+)")


def _numbers(source: Column) -> dict[str, Column]:
    # binlog.10 comes after binlog.9.
    return {"_file": F.regexp_extract(source["file"], r"(\d+)$", 1).try_cast("bigint")}


def _place(source: Column, _: Column) -> Place:
    return Place(F.col("_file"), source["pos"], source["row"])


def _log_end(source: Column) -> LogEnd:
    return LogEnd(F.col("_file"), source["pos"])


def _parse(text: str) -> tuple[int, int | None] | None:
    found = _POSITION.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]))


def _dump_fields(major: int, minor: int | None) -> Mapping[str, Any] | None:
    return None if minor is None else {"file": f"binlog.{major:06d}", "pos": minor, "row": 0}


def _exact_fields(major: Column, minor: Column, ordinal: Column) -> Mapping[str, Column]:
    return {"file": F.concat(F.lit("end."), major.cast("string")), "pos": minor, "row": ordinal}


DIALECT = Dialect(
    connectors=("mysql", "mariadb"),
    fields=(
        T.StructField("file", T.StringType()),
        T.StructField("pos", T.LongType()),
        T.StructField("row", T.LongType()),
    ),
    numbers=_numbers,
    place=_place,
    log_end=_log_end,
    position_text=PositionText("a binlog position", "binlog.000003:4567", _parse),
    dump_fields=_dump_fields,
    exact_fields=_exact_fields,
    transaction_id=("GTID", "gtid"),
)
