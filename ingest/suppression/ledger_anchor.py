"""The anchor: the head of a pipeline's ledger, in a file outside of the lakehouse. A ledger that lacks it was rolled
back."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ingest.errors import ConfigError
from ingest.suppression.ledger_chain import NO_ENTRY, Head


@dataclass(frozen=True)
class LedgerAnchor:
    """The anchor in the file `path`, which need not exist."""

    path: str

    def head(self) -> Head:
        """Returns the entry; `NO_ENTRY` without a file. Raises ConfigError for a file that is no anchor."""
        try:
            document = json.loads(Path(self.path).read_text(encoding="ascii"))
            return Head(int(document["number"]), str(document["hash"]))
        except FileNotFoundError:
            return NO_ENTRY
        except (OSError, ValueError, KeyError, TypeError):
            raise ConfigError(
                f"the anchor of the ledger, {self.path}, can't be read",
                "let this user read it, or bring it back from a backup; if it is lost, delete the file: the next "
                "command writes it from the ledger and its copy",
            ) from None

    def store(self, head: Head) -> bool:
        """Writes the entry. Returns False where this user may not write: the copy's head stands for it then."""
        file = Path(self.path)
        try:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
            with os.fdopen(handle, "w", encoding="ascii") as written:
                json.dump(head._asdict(), written)
            Path(part).replace(file)
        except OSError:
            return False
        return True
