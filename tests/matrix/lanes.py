"""The lanes of `matrix`: records in one form, merged under one policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ingest.config.schema_changes import SchemaSettings
from ingest.evolution.schema_policy import SchemaPolicy
from ingest.pipeline.composition import policy_of
from tests.matrix.changes import CHANGES, Changing

POLICIES: Mapping[str, dict[str, Any]] = {
    "evolve": {"on_change": "evolve"},
    "lenient": {"on_change": "lenient"},
    "ignore": {"on_change": "ignore"},
    "fail": {"on_change": "fail"},
    "included": {"include": ["create.table", "add.column", "drop.column", "alter.column.type"]},
    "excluded": {"on_change": "lenient", "exclude": ["add.column", "alter.nullability", "truncate.table"]},
}
"""Name → settings of a schema policy."""
MIXED = "mixed"
FEW = {
    "computed": "evolve",
    "renamed": "lenient",
    "anew": "ignore",
    "dropped": "fail",
    "other_key": "included",
    "emptied": "excluded",
}
"""Table → its policy in the lane `MIXED`, which has no other tables."""


@dataclass(frozen=True)
class Lane:
    """Records in one form, merged under one policy. `is_live`: the records are those of a real Postgres now."""

    form: str
    policy: str
    is_live: bool = False

    def __str__(self) -> str:
        return f"{'live' if self.is_live else 'recorded'} {self.form} {self.policy}"

    @property
    def changes(self) -> list[Changing]:
        return [change for change in CHANGES if self.policy != MIXED or change.name in FEW]

    @property
    def settings(self) -> dict[str, Any]:
        """Returns the settings of a pipeline."""
        if self.policy != MIXED:
            return {"schema": POLICIES[self.policy]}
        named = {change.table: POLICIES[FEW[change.name]] for change in self.changes}
        return {"tables": {table: {"schema": settings} for table, settings in named.items()}}

    def rules(self, change: Changing) -> SchemaPolicy:
        """Returns the policy of a table."""
        name = FEW[change.name] if self.policy == MIXED else self.policy
        return policy_of(SchemaSettings.model_validate(POLICIES[name]))


SHORT = Lane("told", MIXED)
LONG = (
    *(Lane(form, policy) for form in ("told", "seen") for policy in POLICIES),
    *(Lane("plain", policy) for policy in ("evolve", "lenient", "ignore", "fail")),
    Lane("told", "evolve", is_live=True),
)
