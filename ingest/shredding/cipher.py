"""Encryption of a value as text, `sealed:1:<id of the key>:<base64>`, and decryption, as Spark columns.

AES-256-GCM. The additional data are table, column and key id, so a value that is moved elsewhere doesn't decrypt. The
nonce is a hash of the value under the key's second half: equal values give equal text, and an event that is captured
twice stays one. No plan contains a key as a literal."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

MARK = "sealed:1:"
KEY_BYTES = 64
"""Length of a data key: one half encrypts, the other derives nonces."""
NONCE_BYTES = 12
_ID_LENGTH = 32
_TEXT = rf"^{MARK}[0-9a-f]{{{_ID_LENGTH}}}:[A-Za-z0-9+/]+=*$"
_HALF = KEY_BYTES // 2


def is_sealed(text: Column) -> Column:
    return text.rlike(_TEXT)


def seal(plain: Column, table: Column, column: Column, key_id: Column, key: Column) -> Column:
    """Returns `plain` encrypted, as text. `key`: the unwrapped data key."""
    plain_bytes = F.encode(plain, "UTF-8")
    context = _context(table, column, key_id)
    nonce_input = F.concat(
        F.substring(key, _HALF + 1, _HALF), F.encode(context, "UTF-8"), F.encode(F.lit("\0"), "UTF-8"), plain_bytes
    )
    nonce = F.unhex(F.left(F.sha2(nonce_input, 256), F.lit(2 * NONCE_BYTES)))
    box = F.aes_encrypt(plain_bytes, F.left(key, F.lit(_HALF)), F.lit("GCM"), F.lit("DEFAULT"), nonce, context)
    # Spark's base64 contains line ends.
    return F.concat(F.lit(MARK), key_id, F.lit(":"), F.translate(F.base64(box), "\r\n", ""))


def key_id_of(text: Column) -> Column:
    """Returns the key id of a sealed text; null for other text."""
    return F.when(is_sealed(text), F.substring(text, len(MARK) + 1, _ID_LENGTH))


def unseal(text: Column, table: Column, column: Column, key: Column) -> Column:
    """Returns the plain text of a sealed text; null if `key` is null or not the key that sealed it."""
    key_id = F.substring(text, len(MARK) + 1, _ID_LENGTH)
    box = F.unbase64(F.substring(text, len(MARK) + _ID_LENGTH + 2, 1 << 30))
    context = _context(table, column, key_id)
    plain = F.try_aes_decrypt(box, F.left(key, F.lit(_HALF)), F.lit("GCM"), F.lit("DEFAULT"), context)
    return plain.cast("string")


def unwrap(wrapped: Column, key_id: Column, master: Column) -> Column:
    """Returns the data key; null if `master` is not the key that wrapped it."""
    return F.try_aes_decrypt(wrapped, master, F.lit("GCM"), F.lit("DEFAULT"), key_id)


def _context(table: Column, column: Column, key_id: Column) -> Column:
    return F.concat(table, F.lit("\0"), column, F.lit("\0"), key_id)
