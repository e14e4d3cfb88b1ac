"""A value under its subject's key, as text: `sealed:1:<id of the key>:<base64>`, and back.

AES-256-GCM; the additional data are the table, the column and the id of the key, so a value that is put elsewhere does
not open. The nonce is told by the value (a hash under the key's other half): the same value is the same text again, and
an event that is captured twice stays one. Expressions over DataFrames; no key is ever a literal of a plan.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

MARK = "sealed:1:"
KEY_BYTES = 64
"""Of a data key: half of it encrypts, the other half tells nonces."""
NONCE_BYTES = 12
_ID_LENGTH = 32
_TEXT = rf"^{MARK}[0-9a-f]{{{_ID_LENGTH}}}:[A-Za-z0-9+/]+=*$"
_HALF = KEY_BYTES // 2


def is_sealed(text: Column) -> Column:
    return text.rlike(_TEXT)


def sealed(plain: Column, table: Column, column: Column, key_id: Column, key: Column) -> Column:
    """`plain` as sealed text; `key`: the data key as it is."""
    held = F.encode(plain, "UTF-8")
    place = _place(table, column, key_id)
    told = F.concat(F.substring(key, _HALF + 1, _HALF), F.encode(place, "UTF-8"), F.encode(F.lit("\0"), "UTF-8"), held)
    nonce = F.unhex(F.left(F.sha2(told, 256), F.lit(2 * NONCE_BYTES)))
    box = F.aes_encrypt(held, F.left(key, F.lit(_HALF)), F.lit("GCM"), F.lit("DEFAULT"), nonce, place)
    # Without the line ends that Spark puts in.
    return F.concat(F.lit(MARK), key_id, F.lit(":"), F.translate(F.base64(box), "\r\n", ""))


def key_id_of(text: Column) -> Column:
    """The id in a sealed text; null where it is none."""
    return F.when(is_sealed(text), F.substring(text, len(MARK) + 1, _ID_LENGTH))


def opened(text: Column, table: Column, column: Column, key: Column) -> Column:
    """What is in a sealed text; null where the key is another one, or not there."""
    key_id = F.substring(text, len(MARK) + 1, _ID_LENGTH)
    box = F.unbase64(F.substring(text, len(MARK) + _ID_LENGTH + 2, 1 << 30))
    place = _place(table, column, key_id)
    plain = F.try_aes_decrypt(box, F.left(key, F.lit(_HALF)), F.lit("GCM"), F.lit("DEFAULT"), place)
    return plain.cast("string")


def unwrapped(wrapped: Column, key_id: Column, master: Column) -> Column:
    """A data key as it is; null where the master key is not the one that wrapped it."""
    return F.try_aes_decrypt(wrapped, master, F.lit("GCM"), F.lit("DEFAULT"), key_id)


def _place(table: Column, column: Column, key_id: Column) -> Column:
    return F.concat(table, F.lit("\0"), column, F.lit("\0"), key_id)
