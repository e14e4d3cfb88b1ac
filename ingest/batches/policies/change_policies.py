"""Decides what becomes of changes of a pipeline's tables, by their schema policies, and records it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import functions as F

from ingest.batches.rules import Rules
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account
from ingest.errors import TableUnusable
from ingest.evolution.changes import CreateTable
from ingest.evolution.definition import Place
from ingest.evolution.schema_policy import TRUNCATE_TABLE, Decision, Outcome, SchemaPolicy, changed_column, summary
from ingest.lakehouse.catalog import CatalogEntry
from ingest.lakehouse.schema_history import RecordedOutcome, SchemaOutcomes

SCHEMA_CHANGE = "schema-change"
"""The code of a table that is set aside because of a change that its policy refuses."""
_log = logging.getLogger(__name__)
_Identity = tuple[str, str, Outcome, Place]
_LEVELS = {Outcome.APPLIED: logging.INFO, Outcome.REFUSED: logging.ERROR}


class ChangePolicies:
    """The schema policies of a pipeline's tables."""

    def __init__(self, rules: Rules, outcomes: SchemaOutcomes) -> None:
        self._rules = rules
        self._outcomes = outcomes
        self._recorded: dict[str, set[_Identity]] = {}

    def is_created(self, table: str, entry: CatalogEntry | None) -> bool:
        """Returns whether a table exists or may be created."""
        return entry is not None or table in self._rules.accepted or self._rules.policy_of(table).creates_tables

    def without_truncates(self, batch: TableBatch) -> tuple[TableBatch, Account]:
        """Returns the batch without truncates if these have no effect, and their account. Raises TableUnusable if they
        are refused."""
        found = [group for group in batch.groups if group.kind == "t"]
        outcome = self._rules.policy_of(batch.table).on_truncate
        if not found or outcome is Outcome.APPLIED:
            return batch, Account(batch.table)
        at = min(group.first_position for group in found)
        self._note(batch.table, [RecordedOutcome(at, TRUNCATE_TABLE, "", outcome, TRUNCATE_TABLE)])
        if outcome is Outcome.REFUSED:
            raise _refusal(batch.table, self._rules.policy_of(batch.table), TRUNCATE_TABLE, [TRUNCATE_TABLE])
        groups = [group for group in batch.groups if group.kind != "t"]
        kept = batch.events.where((F.col("op") != "t") | (F.col("source_table") != batch.table))
        count = sum(group.count for group in found)
        account = Account(batch.table, count, suppressed=count, ignored=((TRUNCATE_TABLE, count),))
        return replace(batch, groups=groups, events=kept), account

    def not_created(self, batch: TableBatch) -> Account:
        """Records that a table is not created. Returns the account of its events."""
        at = min((group.first_position for group in batch.groups), default=())
        self._note(batch.table, [RecordedOutcome(at, CreateTable.kind, "", Outcome.IGNORED, CreateTable.kind)])
        return Account(batch.table, batch.count, suppressed=batch.count, ignored=((CreateTable.kind, batch.count),))

    def settle(self, table: str, found: Sequence[Decision], told: bool = False) -> None:
        """Logs and records decisions. Raises TableUnusable if one of them refuses a change. `told`: messages tell the
        changes, so that each has a position of its own."""
        self._note(table, [_recorded(one) for one in found], told)
        refused = [one.change for one in found if one.outcome is Outcome.REFUSED]
        if refused:
            texts = [summary(change) for change in refused]
            raise _refusal(table, self._rules.policy_of(table), refused[0].kind, texts)

    def _note(self, table: str, found: Sequence[RecordedOutcome], told: bool = False) -> None:
        """Logs outcomes, and records those that are not `APPLIED`, each once: those that messages tell, by position."""
        new = []
        for one in found:
            if one.outcome is not Outcome.APPLIED:
                if table not in self._recorded:
                    known = self._outcomes.of_table(table)
                    self._recorded[table] = {_identity(r, at) for r in known for at in (r.position, ())}
                if _identity(one, one.position if told else ()) in self._recorded[table]:
                    continue
                self._recorded[table] |= {_identity(one, one.position), _identity(one, ())}
                new.append(one)
            _log.log(_LEVELS.get(one.outcome, logging.WARNING), "%s: %s: %s", table, one.text, one.outcome)
        if new:
            self._outcomes.add(table, new)


def _identity(one: RecordedOutcome, at: Place) -> _Identity:
    return one.kind, one.column, one.outcome, at


def _recorded(decision: Decision) -> RecordedOutcome:
    change = decision.change
    return RecordedOutcome(decision.at, change.kind, changed_column(change), decision.outcome, summary(change))


def _refusal(table: str, policy: SchemaPolicy, kind: str, texts: Sequence[str]) -> TableUnusable:
    return TableUnusable(
        SCHEMA_CHANGE,
        f"its schema policy (on_change: {policy.mode(kind)}) refuses a change of the source: {'; '.join(texts)}",
        f"allow it: tables: {{{table}: {{schema: {{on_change: evolve}}}}}}",
    )
