"""The few events of a test, read as very many are: by a plan that would be too long for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyspark.sql import DataFrame

from ingest.changelog.images import changes
from ingest.run import capture, decoding


@contextmanager
def read_in_bulk(really: bool = True) -> Iterator[None]:
    """Of whatever is captured and merged meanwhile. Unless `really`, it is read as ever."""

    def in_bulk(events: DataFrame, shape: Any, reader: Any, *_: bool) -> DataFrame:
        return changes(events, shape, reader, in_bulk=True)

    with pytest.MonkeyPatch.context() as patched:
        if really:
            patched.setattr(capture, "FEW", -1)
            patched.setattr(decoding, "changes", in_bulk)
        yield
