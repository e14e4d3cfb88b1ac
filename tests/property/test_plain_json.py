"""Images read without a JSON parser equal those of `from_json`, for any bytes; most images take this path."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ingest.jvm.expressions import invoke
from ingest.jvm.plain_json import CORRUPT, opened, parsed, plain_row, reader

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

_SEED = 28
_CASES = 4000
_FIELDS = {
    "text": T.StringType(),
    "big": T.LongType(),
    "int": T.IntegerType(),
    "small": T.ShortType(),
    "tiny": T.ByteType(),
    "real": T.DoubleType(),
    "flag": T.BooleanType(),
    "größe": T.StringType(),
    "single": T.FloatType(),
    "list": T.ArrayType(T.LongType()),
    "open": T.VariantType(),
}
_INNER = T.StructType([T.StructField(name, kind) for name, kind in _FIELDS.items()])
_TYPE = T.StructType(
    [T.StructField("after", _INNER), T.StructField("before", _INNER), T.StructField(CORRUPT, T.StringType())]
)
_TEXTS = (
    '""',
    '"x"',
    '"1"',
    '"ü€😀"',
    r'"a\"b\\\/\b\f\n\r\t"',
    r'"\u00e4\u20ac\u0041"',
    '"[1,{"',
    '"' + "y" * 300 + '"',
)
_WHOLE = ("0", "7", "-12", "123", "-128", "127", "32767", "2147483647", "-9", "9" * 18)
_REAL = ("0.5", "-0.0", "1.50", "12345.678", "1e5", "-2.5E-7", "0." + "1" * 14, "1" * 15 + ".5", "3.0e400")
_FITTING = {
    "text": (*_TEXTS, *_WHOLE, "true", "false"),
    "größe": _TEXTS,
    "big": _WHOLE,
    "int": _WHOLE[:-1],
    "small": _WHOLE[:7],
    "tiny": _WHOLE[:6],
    "real": (*_WHOLE, *_REAL),
    "flag": ("true", "false"),
}
"""column → JSON values of its type that are read without a parser."""
_ODD = (
    *("-0", "00", "01", "1.", ".5", "+1", "1e", "-", "128", "-129", "256", "32768", "2147483648", "9" * 19, "9" * 40),
    *("NaN", "Infinity", "-INF", '"NaN"', "nul", "nullx", "truex", "tru", "True", "'x'", '"1.5"', '"true"', '" 7 "'),
    *(r'"\q"', r'"\u12"', r'"\ud83d\ude00"', r'"\ud800"', r'"\u0000"', '"\x01"', '"\n"', '"open', r'"\\\"', "1" * 130),
    *("[]", "[1, 2]", "[1,]", "{}", '{"a": 1}', '{"a": }', "[[[]]]", "[" * 120 + "]" * 120, "// x", "1 2", ""),
)
_AROUND = ("null", "{}", "[]", "[1]", '"x"', "1", "true", "")
_TOO_MUCH = ('{"' + "n" * 60_000 + '": 1}', '{"x": ' + "1" * 2000 + "}", '{"x": ' + "[" * 1100 + "]" * 1100 + "}")
_BYTES = (
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\\",
    b'"',
    b"{",
    b"}",
    b",",
    b" ",
    b"\x00",
    b"\\u",
    b"-",
    b"e",
)


def _image(random: Random, odd: bool) -> str:
    known = [*_FITTING, "other", "außen"]
    names = random.sample(known, random.randint(0, len(known)))
    if odd and random.random() < 0.2:
        names.append(random.choice([*names, "single", "list", "open", "\\u0074ext", 'q"']))
    return _object([(name, _value(random, name, odd)) for name in names], random)


def _value(random: Random, name: str, odd: bool) -> str:
    fitting = _FITTING.get(name, (*_WHOLE, *_REAL, *_TEXTS, '{"x": [{"y": null}, -1.5e3]}', "[]"))
    return "null" if random.random() < 0.15 else random.choice(_ODD if odd and random.random() < 0.05 else fitting)


def _object(members: list[tuple[str, str]], random: Random) -> str:
    blank = random.choice(["", "", " ", "\n\t\r"])
    return (
        "{" + blank + f"{blank},{blank}".join(f'"{name}"{blank}:{blank}{text}' for name, text in members) + blank + "}"
    )


def _change(random: Random, odd: bool) -> str:
    images = [(name, "null" if random.random() < 0.2 else _image(random, odd)) for name in ("after", "before")]
    if odd and random.random() < 0.1:
        images.append((random.choice(["after", CORRUPT, "x"]), random.choice(_AROUND)))
    members = [*images, ("op", '"u"'), ("source", _object([("lsn", "12"), ("sequence", r'"[\"1\",\"2\"]"')], random))]
    random.shuffle(members)
    return _object(members[random.randint(0, 2) :], random)


def _broken(random: Random, text: bytes) -> bytes:
    """Returns the text cut off, or with bytes removed, appended or replaced."""
    place = random.randrange(len(text) + 1)
    match random.randrange(4):
        case 0:
            return text[:place]
        case 1:
            return text[:place] + text[place + random.randint(1, 3) :]
        case 2:
            return text + random.choice(_BYTES)
    return text[:place] + random.choice(_BYTES) + text[place + random.randint(0, 1) :]


def _read(spark: SparkSession, values: Sequence[bytes | None], into: T.StructType = _TYPE) -> DataFrame:
    """Returns `value` and its readings: `plain`, without a parser, or null; `whole`, with the parser where that is
    needed; `parsed`, by the parser alone; `known`, of values that are known to be complete."""
    rows = spark.createDataFrame([(None if v is None else bytearray(v),) for v in values], "value binary")
    value, jvm = F.col("value"), spark._jvm
    plain = invoke(jvm, plain_row(jvm, into), "read", into, (value,), pure=True)
    whole, known = opened(value, into), opened(value, into, known=True)
    readings = {"plain": plain, "whole": whole, "parsed": parsed(value, into), "known": known}
    return rows.select(value, *(reading.alias(name) for name, reading in readings.items())).localCheckpoint()


def _same(one: str, other: str) -> Column:
    """Returns whether two columns are equal as JSON and as bytes: as numbers 0 and -0 are equal, variants can't be
    compared, and JSON is text."""
    alone = (F.struct(F.col(name).alias("it")) for name in (one, other))
    shown = [(F.to_json(it, {"ignoreNullFields": "false"}), it.cast("string").cast("binary")) for it in alone]
    return (shown[0][0] == shown[1][0]) & (shown[0][1] == shown[1][1])


def test_plain_values_equal_parsed_values(spark: SparkSession) -> None:
    random = Random(_SEED)
    plain = [_change(random, odd=False).encode() for _ in range(_CASES)]
    odd = [_change(random, odd=True).encode() for _ in range(_CASES)]
    broken = [_broken(random, text) for text in random.choices(plain + odd, k=2 * _CASES)]
    rest = [*odd, *broken, *(text.encode() for text in (*_AROUND, *_ODD, *_TOO_MUCH)), None]

    read = _read(spark, [*plain, *rest])
    wrong = read.where(~_same("whole", "parsed") | (F.col("plain").isNotNull() & ~_same("plain", "parsed")))
    assert wrong.limit(5).collect() == [], _SEED

    plain_result = _read(spark, plain)
    assert plain_result.where(F.col("plain").isNull() | ~_same("known", "parsed")).limit(5).collect() == [], _SEED
    kinds = read.groupBy(F.col("plain").isNull(), F.col(f"parsed.{CORRUPT}").isNull()).count().collect()
    assert len(kinds) == 3, "corrupt values are never plain, and some others aren't either"


@pytest.mark.parametrize("names", [("\ufffd",), ("a", "a")])
def test_ambiguous_names_are_left_to_the_parser(spark: SparkSession, names: tuple[str, ...]) -> None:
    into = T.StructType([T.StructField(name, T.LongType()) for name in names])
    read = _read(spark, [b'{"\xff": 1, "a": 2}'], into)
    assert read.where(~_same("whole", "parsed") | F.col("plain").isNotNull()).collect() == []


def test_known_objects_are_read_up_to_the_last_wanted_field(spark: SparkSession) -> None:
    into = T.StructType([T.StructField(name, T.LongType()) for name in ("a", "b")])
    into.add(CORRUPT, T.StringType())
    (row,) = _read(spark, [b'{"x": [], "b": null, "a": 1, "c": {here it ends'], into).collect()
    assert (row["known"]["a"], row["known"]["b"], row["known"][CORRUPT]) == (1, None, None)
    assert row["plain"] is None
    assert row["whole"][CORRUPT] is not None


def test_later_reads_leave_earlier_rows_unchanged(spark: SparkSession) -> None:
    read = reader(spark._jvm, T.StructType([T.StructField("a", T.LongType()), T.StructField(CORRUPT, T.StringType())]))
    first, second = (read.read(f"{{'a': {number}}}".encode()) for number in (1, 2))
    assert (first.getLong(0), second.getLong(0)) == (1, 2)
