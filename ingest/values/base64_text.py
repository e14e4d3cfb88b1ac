"""Decodes base64 text. Spark's `unbase64` skips foreign characters and fails the task for truncated text, and the
checked `try_to_binary` costs ten times as much, so the text is matched by a pattern first.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

_ONE = "[A-Za-z0-9+/]"
_CUT = f"({_ONE}{{2}}==|{_ONE}{{3}}=)"


def is_base64(text: SparkColumn) -> SparkColumn:
    """Returns true for padded base64 of any number of bytes, including none."""
    return text.rlike(f"^{_ONE}*={{0,2}}$") & (F.length(text) % 4 == 0)


def is_base64_of_1_to_8(text: SparkColumn) -> SparkColumn:
    """Returns true for padded base64 of 1 to 8 bytes."""
    return text.rlike(f"^({_ONE}{{4}}){{0,2}}{_CUT}$|^({_ONE}{{4}}){{1,2}}$")


def is_base64_of_9_to_16(text: SparkColumn) -> SparkColumn:
    """Returns true for padded base64 of 9 to 16 bytes."""
    return text.rlike(f"^({_ONE}{{4}}){{3,4}}{_CUT}$|^({_ONE}{{4}}){{3,5}}({_ONE}{{2}}==)?$")


def bytes_of(text: SparkColumn) -> SparkColumn:
    """Returns the decoded bytes; null if the text is no base64."""
    return F.when(is_base64(text), F.unbase64(text))
