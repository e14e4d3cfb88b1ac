"""A key of a row as the ledger remembers it: HMAC-SHA256 under a secret key, so that nobody without that can tell whose
it is by trying out all numbers. The same in Python and in Spark, where the secret is never part of a plan."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

INNER, OUTER = "_inner", "_outer"
"""Columns of the two blocks that a secret key becomes (RFC 2104)."""
_BLOCK = 64


def keyed_hash(secret: bytes, table: str, text: str) -> str:
    """Of a key of `table`, hexadecimal."""
    return hmac.new(secret, f"{table}\0{text}".encode(), hashlib.sha256).hexdigest()


def blocks(secret: bytes) -> dict[str, bytes]:
    """What `hashed` needs of the secret key."""
    whole = (hashlib.sha256(secret).digest() if len(secret) > _BLOCK else secret).ljust(_BLOCK, b"\0")
    return {INNER: bytes(b ^ 0x36 for b in whole), OUTER: bytes(b ^ 0x5C for b in whole)}


def hashed(table: Column, text: Column) -> Column:
    """`keyed_hash` of each row's `text`, by the `INNER` and `OUTER` in it; null where there is none."""
    said = F.encode(F.concat(table, F.lit("\0"), text), "UTF-8")
    inside = F.unhex(F.sha2(F.concat(F.col(INNER), said), 256))
    return F.sha2(F.concat(F.col(OUTER), inside), 256)


def key_text(columns: Sequence[tuple[Column, T.DataType]]) -> Column:
    """A key as one text, the same in its own table and as another one's foreign key; null where a part is."""
    parts = [_text(value, kind) for value, kind in columns]
    if len(parts) == 1:
        return parts[0]
    whole = F.array(*parts)
    return F.when(~F.exists(whole, lambda part: part.isNull()), F.to_json(whole))


def _text(value: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.BinaryType):
        return F.lower(F.hex(value))
    if isinstance(kind, T.DecimalType) and kind.scale:
        # 42.00 and 42 are one key.
        return F.regexp_replace(value.cast("string"), r"\.?0+$", "")
    return value.cast("string")
