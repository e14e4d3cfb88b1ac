"""The consoles on which commands print."""

from __future__ import annotations

import os
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_WIDEST = 10_000


class _TableConsole(Console):
    """Prints every cell of a table whole: folded if the terminal is too narrow, on one line in a file or a pipe."""

    def print(self, *objects: Any, **options: Any) -> None:
        for table in (one for one in objects if isinstance(one, Table)):
            for column in table.columns:
                column.overflow = "fold"
            if not self.is_terminal and "COLUMNS" not in os.environ:
                needed = Measurement.get(self, self.options.update(max_width=_WIDEST), table).maximum
                self.width = max(self.width, needed)
        super().print(*objects, **options)


def plain_console(stderr: bool = False, soft_wrap: bool = False) -> Console:
    """Returns a console that prints names and values unchanged: they may hold `[a-z]` and `:key:`, which rich would
    interpret."""
    return _TableConsole(markup=False, emoji=False, highlight=False, stderr=stderr, soft_wrap=soft_wrap)
