"""Decoded values of one column."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Leaf:
    """Values of one type. `path`: names of the columns that contain them, outermost first."""

    path: tuple[str, ...]
    values: pa.Array
