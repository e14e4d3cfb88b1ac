"""Keyed hashes of row keys, as the ledger stores them: HMAC-SHA256, so that keys can't be found by enumeration without
the secret. Computed in Python and in Spark alike; no plan contains the secret."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

INNER, OUTER = "_ingest_inner", "_ingest_outer"
"""Columns of the inner and outer padded key of RFC 2104."""
_BLOCK = 64


def keyed_hash(secret: bytes, table: str, text: str) -> str:
    """Returns the hash of a key of `table`, in hexadecimal."""
    return hmac.new(secret, f"{table}\0{text}".encode(), hashlib.sha256).hexdigest()


def hmac_blocks(secret: bytes) -> dict[str, bytes]:
    """Returns the columns of a secret that `keyed_hash_column` needs."""
    padded = (hashlib.sha256(secret).digest() if len(secret) > _BLOCK else secret).ljust(_BLOCK, b"\0")
    return {INNER: bytes(b ^ 0x36 for b in padded), OUTER: bytes(b ^ 0x5C for b in padded)}


def keyed_hash_column(table: Column, text: Column) -> Column:
    """Returns `keyed_hash` of each row's `text`, by the row's `INNER` and `OUTER`; null if `text` is null."""
    message = F.encode(F.concat(table, F.lit("\0"), text), "UTF-8")
    inner_hash = F.unhex(F.sha2(F.concat(F.col(INNER), message), 256))
    return F.sha2(F.concat(F.col(OUTER), inner_hash), 256)


def key_text(columns: Sequence[tuple[Column, T.DataType]]) -> Column:
    """Returns a key as one text, equal in its own table and in a foreign key that holds it; null if any part is
    null."""
    parts = [_text(value, kind) for value, kind in columns]
    if len(parts) == 1:
        return parts[0]
    array = F.array(*parts)
    return F.when(~F.exists(array, lambda part: part.isNull()), F.to_json(array))


def _text(value: Column, kind: T.DataType) -> Column:
    if isinstance(kind, T.BinaryType):
        return F.lower(F.hex(value))
    if isinstance(kind, T.DecimalType) and kind.scale:
        # 42.00 and 42 are the same key.
        return F.regexp_replace(value.cast("string"), r"\.?0+$", "")
    return value.cast("string")
