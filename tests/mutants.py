"""Inserts faults into the code, one at a time: the tests must catch each. `make mutants` runs them all.

A mutant is a copy of the project with one text replaced. It is caught if one of its tests fails. All run in this
process, one after the other, on one Spark session: starting one takes longer than most of the tests.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

ROOT = Path(__file__).parents[1]
MERGE = ("tests/property/test_merge.py", "-k", "silver_equals and 7")
PREPARED = ("tests/spark/test_prepared.py",)
SMALL = ("tests/property/test_merge.py", "-k", "silver_equals and few")
ONE_BATCH = ("tests/property/test_merge.py", "-k", "silver_equals and small")
BATCHES = ("tests/merge/test_rules.py", "-k", "record")
TRUNCATES = ("tests/property/test_merge.py", "-k", "truncates")
PLAIN_JSON = ("tests/property/test_plain_json.py",)
CRASHES = ("tests/property/test_crashes.py",)
TWO_RUNS = ("tests/property/test_two_runs.py", "-k", "keeps_its_end or applied_once")
DUPLICATES = ("tests/loop/test_duplicate_delivery.py", "-k", "another")
KNOWN = ("tests/property/test_merge.py", "-k", "known_changelogs and 2-1")
QUALITY = ("tests/quality/test_accounting.py",)
ORDER = ("tests/loop/test_order.py",)
SUPPRESSION = ("tests/suppression/test_suppression.py", "-k", "suppressed or children")
EMPTIED = ("tests/archive/test_emptying.py",)
ARCHIVE = ("tests/archive/test_erasing.py", "-k", "(are_gone or concurrently or running) and not plain")
RULES = ("tests/merge/test_rules.py", "-k", "not record")
SEEN = ("tests/evolution/test_seen_definitions.py",)
PARTS = ("tests/batches/test_decoding_parts.py",)
RUNS = ("tests/batches/test_schema_runs.py", "-k", "alternate")
CHANGING = ("tests/property/test_changing_tables.py", "-k", "known")
FACTS = ("tests/property/test_key_facts.py",)
KEYS = ("tests/property/test_changing_keys.py", "-k", "known")
REVISIONS = ("tests/loop/test_schema_revisions.py", "-k", "brought_up")
DIALECTS = ("tests/changelog/test_dialects.py",)
MASKED = ("tests/erasure/test_masking.py", "-k", "keeps_its_other")
COMPACTED_TOPICS = ("tests/erasure/test_compacted_topics.py", "-k", "concurrent")
IMPORTED = (
    "tests/archive/test_import_files.py",
    "-k",
    "changed_naming or read_as_empty or (restored_silver and turns2)",
)
AS_OF = ("tests/archive/test_as_of.py", "-k", "equals_bronze and more0")
FAR_BEHIND = ("tests/backfill/test_batch_is_stream.py", "-k", "far_behind")
FILES_DUE = ("tests/delta/test_files_due.py",)
KAFKA = ("tests/sources/test_kafka_source.py",)
LATE = ("tests/property/test_merge.py", "-k", "late")
REPEATED = ("tests/batches/test_repeated_tombstones.py",)
COMPACTION = ("tests/delta/test_compaction.py", "-k", "slice")
NAMES = ("tests/changelog/test_reserved_names.py", "-k", "quarantined")
QUARANTINE = ("tests/lakehouse/test_quarantine.py",)
SUMMARY = ("tests/lakehouse/test_bronze_summary.py",)
RESYNCS = ("tests/property/test_resyncs.py", "-k", "not any")
SUBJECT_INDEX = ("tests/erasure/test_subject_index.py",)
TOLD = ("tests/loop/test_told_tables.py", "-k", "of_the_source and many")
TOLD_STORED = ("tests/loop/test_told_tables.py", "-k", "stored_table")
TOLD_KEYS = ("tests/loop/test_told_tables.py", "-k", "come_after")
TOLD_NAMES = ("tests/loop/test_told_tables.py", "-k", "names_that")
LOST_KEYS = ("tests/loop/test_dropped_keys.py", "-k", "late_event")
LATE_MESSAGES = ("tests/loop/test_told_tables.py", "-k", "not_revise")
LIVES = ("tests/evolution/test_lives_of_random_tables.py",)
REVISED = ("tests/evolution/test_revisions.py",)
EXAMPLES = ("tests/evolution/test_lives.py",)
FOLLOWED = ("tests/evolution/test_tables.py",)
TYPES = ("tests/evolution/test_type_steps.py",)
POLICY = ("tests/evolution/test_schema_policy.py",)
TOLD_POLICY = ("tests/evolution/told/test_admission.py",)
PERSONAL_NAMES = ("tests/suppression/test_personal_names.py",)
MESSAGES = ("tests/evolution/test_ddl_version.py",)
KEY_NAMES = ("tests/evolution/test_keys.py",)
NEEDLES = ("tests/erasure/test_needles.py",)
SEALED = ("tests/proof/test_sealed_file.py",)


@dataclass(frozen=True)
class Mutant:
    """`fault`: a description. `before` occurs in `file` exactly once. `tests`: arguments of pytest that select tests of
    which one must fail."""

    fault: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...] = MERGE


MUTANTS = [
    Mutant(
        "what is left of an erased life makes its values pass for others'",
        "erasure/shared_values.py",
        "flagged.where(F.col(BEFORE_CUTOFF) | F.col(UNDECIDED))",
        "flagged.where(F.lit(False))",
        NEEDLES,
    ),
    Mutant(
        "a quarantined value that its type can't hold is not collected",
        "erasure/table_events.py",
        "typed.unionByName(rest)",
        "typed",
        NEEDLES,
    ),
    Mutant(
        "the key of collected values outlives them",
        "proof/needles/sealed_file.py",
        "for path in (self._named(_KEY), self.path):",
        "for path in (self.path,):",
        SEALED,
    ),
    Mutant(
        "a resync removes rows before its reads are merged",
        "loop/table_merge.py",
        "        changeset = None\n        if readable",
        "        self._emptied.remove_gone(batch, stored, truncation)\n        changeset = None\n        if readable",
        RESYNCS,
    ),
    Mutant(
        "an event from before a resync brings its row back",
        "reconcile/changeset.py",
        "states.where(F.col(CODE).isNotNull() | F.col(DELETED) | is_above)",
        "states",
        RESYNCS,
    ),
    Mutant(
        "values from before a resync are forgotten",
        "loop/writing.py",
        "return replace(truncation, resynced=max(floor, known.resync or floor),",
        "return replace(truncation, position=max(floor, truncation.position or floor), resynced=floor,",
        RESYNCS,
    ),
    Mutant(
        "an event makes its own image obsolete",
        "merge/key_facts.py",
        "F.col(POSITION_COLUMN) < F.col(_FACT)",
        "F.col(POSITION_COLUMN) <= F.col(_FACT)",
        FACTS,
    ),
    Mutant(
        "the oldest row of a new key is shown",
        "merge/key_facts.py",
        "F.col(POSITION_COLUMN).desc()",
        "F.col(POSITION_COLUMN)",
        KEYS,
    ),
    Mutant(
        "rows leave no tombstone of their old key",
        "lakehouse/rekeying.py",
        "_old_facts(rows, stored,",
        "_old_facts(rows.limit(0), stored,",
        KEYS,
    ),
    Mutant(
        "rows that share their new key with a newer one are lost",
        "lakehouse/rekeying.py",
        "count = hidden.count()",
        "count = 0",
        KEYS,
    ),
    Mutant(
        "a row whose event carried an older key replaces rows by the key in force",
        "reconcile/several_keys.py",
        "rows = carriers(candidates.where(F.col(_ORIGIN) != _STATE), keys.table_schema.key, known, types)",
        "rows = candidates.where(F.col(_ORIGIN) != _STATE)",
        KEYS,
    ),
    Mutant(
        "late events of an older key leave no tombstone",
        "reconcile/several_keys.py",
        "if applied else None",
        "if not applied else None",
        KEYS,
    ),
    Mutant(
        "a null tombstone moves no row",
        "batches/placement.py",
        'for table in counted if table["moves"]',
        "for table in counted if False",
        ("tests/changelog/test_forms.py", "-k", "upserts"),
    ),
    Mutant(
        "tombstones that decide about rows of an earlier key are deleted",
        "upkeep/tombstone_gc.py",
        'row["at"] is None or tuple(row["at"]) >= horizon',
        "True",
        ("tests/upkeep/test_gc_of_keys.py",),
    ),
    Mutant(
        "an expression that is executed again computes nothing",
        "evolution/lives.py",
        "not version.cause.using and replace(",
        "replace(",
        ("tests/evolution/test_lives.py",),
    ),
    Mutant(
        "columns that events have shown get no number",
        "evolution/lives.py",
        "number = life.definition.number if column.number is None else column.number",
        "number = life.definition.number",
        ("tests/evolution/test_lives.py",),
    ),
    Mutant(
        "a null tombstone is placed by the bytes of its key",
        "changelog/record_keys.py",
        "return F.coalesce(F.to_json(F.coalesce(inside, json)), text)",
        "return text",
        RULES,
    ),
    Mutant(
        "a value that loses digits in its declared type is rounded",
        "values/exact_cast.py",
        "return F.when(_comparable(again, before).eqNullSafe(_comparable(value, before)), found)",
        "return found",
        RULES,
    ),
    Mutant(
        "tombstones of a key's former type are not found",
        "evolution/policies.py",
        "return replace(column, hashed_as=(*former.hashed_as, former.type))",
        "return column",
        RULES,
    ),
    Mutant(
        "an event that carries another text of a deleted key restores its row",
        "reconcile/former_texts.py",
        "F.col(POSITION_COLUMN) <= F.col(_DELETED_AT)",
        "F.lit(False)",
        BATCHES,
    ),
    Mutant(
        "rows that wait to be removed leave no tombstone of a new key",
        "lakehouse/rekeying.py",
        "if waiting is not None and not waiting.isEmpty():",
        "if False:",
        BATCHES,
    ),
    Mutant(
        "the first key is in force for ever",
        "evolution/keys.py",
        "return max({in_force: at, **others}.items(), key=lambda one: one[1])[0]",
        "return in_force",
        ("tests/evolution/test_keys.py",),
    ),
    Mutant(
        "a slice waits for the compaction of all tables",
        "loop/merge.py",
        "if self._deferred_compactions % FILES_PER_SIZE:",
        "if False:",
        COMPACTION,
    ),
    Mutant(
        "a batch waits for the compaction of silver and of tombstones",
        "loop/writing.py",
        "or stored.tombstones.compact()",
        "| stored.tombstones.compact()",
        COMPACTION,
    ),
    Mutant(
        "a row is returned that the parser overwrites",
        "jvm/java/ingest/json/JsonReader.java",
        "found.copy()",
        "found",
        PLAIN_JSON,
    ),
    Mutant(
        "a value that is no text is read as one, eight bytes at a time",
        "jvm/java/ingest/json/PlainJson.java",
        "letters |= eight & (found & -found) - 1;",
        "",
        PLAIN_JSON,
    ),
    Mutant(
        "keys that differ by microseconds are one key",
        "merge/actions.py",
        "for name, value in values.items())), LOSSLESS_JSON)",
        'for name, value in values.items())), {"ignoreNullFields": "false"})',
        BATCHES,
    ),
    Mutant(
        "rows that differ by microseconds are one row",
        "changelog/change.py",
        'LOSSLESS_JSON | {"ignoreNullFields": "true"}',
        "{}",
        RULES,
    ),
    Mutant(
        "the last value of a repeated field counts",
        "merge/images.py",
        '~are_parsed(parsed_images(value.cast("string"))) if reader.may_repeat_fields else F.lit(False)',
        "F.lit(False)",
        RULES,
    ),
    Mutant(
        "a number of any length counts as exact",
        "evolution/inferred/inference.py",
        "lambda digits: ~_is_exact(digits)",
        "lambda digits: F.lit(False)",
        BATCHES,
    ),
    Mutant(
        "the target of a moved row is forgotten",
        "lakehouse/tombstones.py",
        "_newest_per_move(found.where(F.col(MOVED_TO).isNotNull()))",
        "_newest_per_move(found.where(F.col(MOVED_TO).isNull()))",
        LATE,
    ),
    Mutant(
        "the first of the values that moves carried over counts",
        "merge/partial_rows.py",
        "F.struct(before, F.coalesce(told_position, before))",
        "F.struct(before, F.when(told_position.isNull(), before))",
        LATE,
    ),
    Mutant(
        "a row is followed over one key change only",
        "reconcile/column_facts.py",
        "late = stored.where(F.col(MOVED_AT).isNotNull())",
        "late = stored.where(F.lit(False))",
        LATE,
    ),
    Mutant(
        "an event older than its row's move does not change the new key",
        "reconcile/whole_rows.py",
        "(counts.moved and _moved_later(",
        "(not counts.moved and _moved_later(",
        LATE,
    ),
    Mutant(
        "an equal position wins again",
        "merge/actions.py",
        "F.coalesce(position > stored,",
        "F.coalesce(position >= stored,",
        QUALITY,
    ),
    Mutant(
        "a late image wins",
        "merge/actions.py",
        "F.coalesce(position > stored,",
        "F.coalesce(position != stored,",
    ),
    Mutant(
        "tombstones are ignored",
        "merge/actions.py",
        "above_row & above_tombstone & ~is_duplicate",
        "above_row & ~is_duplicate",
    ),
    Mutant(
        "a late delete removes a newer row",
        "merge/actions.py",
        "above_row | is_left_behind",
        "F.lit(True)",
    ),
    Mutant(
        "the oldest event of a batch wins",
        "merge/compaction.py",
        "F.col(column).desc()",
        "F.col(column).asc()",
    ),
    Mutant(
        "the first of repeated images counts",
        "batches/group_stats.py",
        'F.bool_and(F.col("_novelty").isNotNull())',
        "F.lit(True)",
        ("tests/loop/test_duplicate_delivery.py",),
    ),
    Mutant(
        "uncertain batch statistics count as known",
        "batches/batch_stats.py",
        'stats["seen"] is not None',
        "bool(stats)",
        ("tests/property/test_batch_stats.py",),
    ),
    Mutant(
        "positions are compared by their first fields only",
        "merge/compaction.py",
        "tuple(_POSITION_FIELDS)",
        "tuple(_POSITION_FIELDS[:2])",
        ("tests/property/test_compaction.py",),
    ),
    Mutant(
        "a refused change replaces the other changes of its key",
        "merge/compaction.py",
        "key), _REFUSED_ID)",
        "key))",
        ("tests/property/test_compaction.py",),
    ),
    Mutant(
        "batch order breaks ties",
        "changelog/position.py",
        '"offset": offset,',
        '"offset": F.lit(0).cast("bigint"),',
    ),
    Mutant(
        "a snapshot read beats a change at the same position",
        "changelog/position.py",
        'F.when(op == "r", read).when(op == "m", -1).otherwise(1)',
        'F.when(op == "m", -1).otherwise(1)',
        RULES,
    ),
    Mutant(
        "a message stands above the change at its LSN",
        "changelog/position.py",
        '.when(op == "m", -1)',
        "",
        ("tests/changelog/test_ddl_message.py", "-k", "stands_between"),
    ),
    Mutant(
        "a default of the source fills rows that the command did not rewrite",
        "evolution/ddl_version.py",
        "(has_values and (is_rewritten or tag == BASELINE))",
        "has_values",
        ("tests/evolution/test_ddl_version.py",),
    ),
    Mutant(
        "events come before the messages",
        "sources/offset_ranges.py",
        "if of_messages.behind or ",
        "if ",
        ("tests/sources/test_offset_ranges.py",),
    ),
    Mutant(
        "the position of a column is ignored",
        "merge/partial_rows.py",
        'F.when(older, F.when(~entry["before"], entry["position"])).otherwise(position)',
        "position",
    ),
    Mutant(
        "a value survives a delete",
        "merge/partial_rows.py",
        'has_after, has_before = ~brought["gone"], ~before["gone"]',
        'has_after, has_before = brought["at"].isNotNull(), before["at"].isNotNull()',
    ),
    Mutant(
        "a row with an unknown column is shown",
        "merge/partial_rows.py",
        "on_silver = action(~F.col(DELETED) & complete, row)",
        "on_silver = action(~F.col(DELETED), row)",
    ),
    Mutant(
        "a moved row loses its unchanged values",
        "reconcile/partial_rows.py",
        "if followed is None and not (summary.moves and (summary.names or key_changes)):",
        "if True:",
    ),
    Mutant(
        "a moved row stays under its old key",
        "merge/moves.py",
        "moves = F.col(CODE).isNull() & has_old_key & differs",
        "moves = F.lit(False)",
    ),
    Mutant(
        "a truncate removes later rows",
        "lakehouse/silver.py",
        "F.col(POSITION_COLUMN) < before",
        "F.lit(True)",
        TRUNCATES,
    ),
    Mutant(
        "a truncate is forgotten",
        "reconcile/changeset.py",
        "(F.col(POSITION_COLUMN) > position_literal(position))",
        "F.lit(True)",
        TRUNCATES,
    ),
    Mutant(
        "a null tombstone is placed after later events",
        "changelog/tombstone_placement.py",
        "rowsBetween(Window.unboundedPreceding, -1)",
        "rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)",
        ONE_BATCH,
    ),
    Mutant(
        "a null tombstone repeats the preceding delete of any key",
        "batches/group_stats.py",
        '(before["offset"] + 1 == F.col("offset")) & (before["key"] == F.col("key"))',
        'before["offset"] + 1 == F.col("offset")',
        REPEATED,
    ),
    Mutant(
        "a null tombstone repeats any earlier delete of its key",
        "batches/group_stats.py",
        '(before["offset"] + 1 == F.col("offset")) & (before["key"] == F.col("key"))',
        'before["key"] == F.col("key")',
        REPEATED,
    ),
    Mutant(
        "reserved names of columns are allowed",
        "evolution/policies.py",
        "if is_reserved(name):",
        "if False:",
        NAMES,
    ),
    Mutant(
        "only NOT NULL columns have a fill",
        "evolution/seen_definitions.py",
        "if column.has_default and column.default not in (None, _NULL_DEFAULT):",
        "if column.has_default and not column.optional:",
        SEEN,
    ),
    Mutant(
        "rows from before a column without a default read null",
        "evolution/seen_definitions.py",
        "return NULL if column.optional and is_shown else UNKNOWN",
        "return NULL",
        SEEN,
    ),
    Mutant(
        "the fill of an altered column ignores its position",
        "lakehouse/column_changes.py",
        "(at < position_literal(end), value)",
        "(at.isNotNull(), value)",
        BATCHES,
    ),
    Mutant(
        "stored values are revised by the position of their row",
        "lakehouse/column_changes.py",
        "at = column_position(name) if",
        "at = F.col(POSITION_COLUMN) if",
        BATCHES,
    ),
    Mutant(
        "events of two lives of a column are read alike",
        "batches/decoding_parts.py",
        "*boundaries(lives, group.first_position, group.last_position)",
        "",
        PARTS,
    ),
    Mutant(
        "schemas that alternate within a slice are not looked at",
        "batches/schema_runs.py",
        "any(last >= first for",
        "any(False for",
        RUNS,
    ),
    Mutant(
        "the schemas of late events are not placed among those before them",
        "batches/seen_versions.py",
        "if lowest > highest and others is None:",
        "if True:",
        CHANGING,
    ),
    Mutant(
        "tables that a dead run left behind the catalog stay there",
        "reconcile/table_revisions.py",
        "if revision < entry.revision and (revision or entry.is_intent):",
        "if revision < entry.revision and known is not None:",
        REVISIONS,
    ),
    Mutant(
        "a dropped column of a keyless table keeps its values",
        "batches/decoding_parts.py",
        "gone = set() if table_schema.key else",
        "gone = set() if True else",
        PARTS,
    ),
    Mutant(
        "a repeated delivery of a keyless table counts twice",
        "merge/keyless.py",
        "is_first | ~is_placed",
        "F.lit(True)",
        RULES,
    ),
    Mutant(
        "a connector that starts twice repeats rows",
        "merge/keyless.py",
        ' & ~F.col("_is_later")',
        "",
        RULES,
    ),
    Mutant(
        "events that look as before a message show no type that it leaves out",
        "batches/seen_versions.py",
        "newest.cause.drops_table or _has_unshown_types(known)",
        "newest.cause.drops_table",
        TOLD_STORED,
    ),
    Mutant(
        "a column keeps a type that holds no value of its events",
        "evolution/column_types.py",
        "is_other or is_other_form or",
        "is_other or",
        TOLD_STORED,
    ),
    Mutant(
        "a removal without its row is not kept",
        "reconcile/keyless.py",
        "return stored.pending.located() if stored.pending.exists() else None",
        "return None",
        BATCHES,
    ),
    Mutant(
        "a slice that died is counted again",
        "loop/merge.py",
        "through_batch = self._slices.end(self.merged, last) if unfinished is None else unfinished",
        "through_batch = self._slices.end(self.merged, last)",
        CRASHES,
    ),
    Mutant(
        "an unfinished slice counts for later ones",
        "loop/unfinished_slices.py",
        "t.user_metadata[THROUGH_BATCH] == batch.through_batch",
        "t.user_metadata[THROUGH_BATCH] > 0",
        CRASHES,
    ),
    Mutant(
        "two runs merge slices that end at different batches",
        "lakehouse/accounts.py",
        "begun not in (None, through_batch) or self._table.txn_version(application) > after",
        "False",
        TWO_RUNS,
    ),
    Mutant(
        "a pending removal is read after another run has applied it",
        "loop/writing.py",
        "        stored.pending.require_pinned_snapshot()",
        "        pass",
        TWO_RUNS,
    ),
    Mutant(
        "a row is removed without its tombstone",
        "loop/writing.py",
        "    if changeset.tombstones is not None:",
        "    if changeset.tombstones is not None and changeset.silver is None:",
        (*CRASHES, "-k", "tombstone"),
    ),
    Mutant(
        "an event at its row's position counts as a duplicate without a comparison of values",
        "reconcile/whole_rows.py",
        'F.col("_ingest_state_content") == F.col("_ingest_stored_content")',
        "F.lit(True)",
        DUPLICATES,
    ),
    Mutant(
        "large batches ignore tombstones",
        "reconcile/whole_rows.py",
        "stored.tombstones.all()",
        "stored.tombstones.all().limit(0)",
    ),
    Mutant(
        "the check of duplicates is skipped",
        "reconcile/whole_rows.py",
        'return bool(equal["same"] == count)',
        "return True",
        DUPLICATES,
    ),
    Mutant(
        "a position regression between two batches is not detected",
        "batches/group_stats.py",
        "one.progress[1] <= other.progress[0]",
        "one.progress[1] is not None",
        (*ORDER, "-k", "counted or statistics"),
    ),
    Mutant(
        "a duplicate is written again",
        "merge/actions.py",
        "takes_effect & ~deleted & is_same_source_position(position, row)",
        "F.lit(False)",
        QUALITY,
    ),
    Mutant(
        "a quarantined event is stored twice",
        "lakehouse/quarantine.py",
        "if any(r.may_be_in(f) for r in ranges)",
        "if all(r.may_be_in(f) for r in ranges) and not ranges",
        QUARANTINE,
    ),
    Mutant(
        "a summary of bronze forgets earlier batches",
        "lakehouse/bronze/summary.py",
        "_higher(self._ends.get(end.place), end)",
        "end",
        SUMMARY,
    ),
    Mutant(
        "new events are not searched for keys of earlier erasures",
        "erasure/erased_events.py",
        "unsearched & {*index.spans_with(ledger.keys())} if unsearched else set[Span]()",
        "set[Span]()",
        SUBJECT_INDEX,
    ),
    Mutant(
        "keys found in events are not searched in the rest of the history",
        "erasure/erased_events.py",
        "if ledger.last_number() == last_entry:",
        "if ledger.last_number() >= last_entry:",
        SUBJECT_INDEX,
    ),
    Mutant(
        "a repeated partial image is written again",
        "merge/partial_rows.py",
        "is_same = is_same | (_is_duplicate(stored) & ~is_deleted_before)",
        "pass",
        QUALITY,
    ),
    Mutant(
        "a repeated partial image stays below its own tombstone",
        "merge/partial_rows.py",
        "_is_duplicate(stored) & ~is_deleted_before",
        "_is_duplicate(stored)",
        KNOWN,
    ),
    Mutant(
        "an event older than the gc horizon is applied",
        "merge/actions.py",
        "if horizon is not None:",
        "if False:",
        ORDER,
    ),
    Mutant(
        "a restarted log is not detected",
        "loop/position_regression.py",
        "if regressed.isEmpty():",
        "if True:",
        ORDER,
    ),
    Mutant(
        "a restarted connector counts as a restarted log",
        "loop/position_regression.py",
        'found.where(F.col("_first") == F.col("offset"))',
        "found",
        ORDER,
    ),
    Mutant(
        "the row that an update replaces stays",
        "lakehouse/row_changes.py",
        "isin(UPDATE, DELETE)).select(LOCATION)",
        "isin(DELETE)).select(LOCATION)",
    ),
    Mutant(
        "the row that an update of a small batch replaces stays",
        "reconcile/action_counts.py",
        "takes_effect(include_tied=False), F.col(LOCATION)",
        "F.col(ACTION) == DELETE, F.col(LOCATION)",
        SMALL,
    ),
    Mutant(
        "a duplicate in a small batch removes its row",
        "reconcile/action_counts.py",
        "takes_effect(include_tied=False), F.col(LOCATION)",
        "takes_effect(), F.col(LOCATION)",
        SMALL,
    ),
    Mutant(
        "a plan with a shuffle is reused",
        "jvm/java/ingest/prepared/PreparedQuery.java",
        "isRepeatable(executed) ? ",
        "true ? ",
        PREPARED,
    ),
    Mutant(
        "two tasks share one copy",
        "jvm/java/ingest/prepared/Copies.java",
        "free.poll()",
        "free.peek()",
        PREPARED,
    ),
    Mutant(
        "rows of the change data feed are added to the table",
        "jvm/java/ingest/delta/SmallWrite.java",
        "kind.changeType >= 0 && ",
        "kind.changeType < 0 && ",
        ("tests/delta/test_small_rows.py",),
    ),
    Mutant(
        "files of a running commit are deleted with old versions",
        "upkeep/upkeep.py",
        "vacuum.remove_old_versions(self._spark, [path])",
        "vacuum.remove_old_versions(self._spark, [path], 0)",
        ("tests/upkeep/test_upkeep.py",),
    ),
    Mutant(
        "some of many keys are not searched",
        "jvm/page_filter.py",
        "range(0, values.size(), _VALUES_A_FILTER)",
        "range(_VALUES_A_FILTER, values.size(), _VALUES_A_FILTER)",
        ("tests/delta", "tests/lakehouse"),
    ),
    Mutant(
        "events of a dropped relation are read",
        "batches/decoding_parts.py",
        "if is_at_or_above(begin or group.first_position, lives.begin)]",
        "]",
        PARTS,
    ),
    Mutant(
        "columns that are gone stay in a mapped table",
        "delta/mapped_columns.py",
        'return bool(field["metadata"].get(_FORMER))',
        "return False",
        ("tests/delta/test_mapped_columns.py",),
    ),
    Mutant(
        "a name in another case takes the place of the column before",
        "delta/mapped_columns.py",
        'stored = {caseless(f["name"]): f',
        'stored = {f["name"]: f',
        ("tests/delta/test_mapped_columns.py",),
    ),
    Mutant(
        "a compaction restores deleted rows",
        "delta/delta_table.py",
        "removed = [self._delta.remove_without_data_change(f.action) for f in files]",
        "removed = [self._delta.remove_without_data_change(f.action) for f in files[1:]]",
        ("tests/delta", "tests/lakehouse"),
    ),
    Mutant(
        "all epochs are equal",
        "changelog/position.py",
        "F.when(timestamp >= F.lit(begin), 1).otherwise(0)",
        "F.lit(0)",
        RULES,
    ),
    Mutant(
        "a transaction that was open is as old as its own LSN",
        "changelog/dialects/postgresql.py",
        "major=F.when(is_behind, committed).otherwise(",
        "major=F.when(F.lit(False), committed).otherwise(",
        DIALECTS,
    ),
    Mutant(
        "binlog files compare by their last digit",
        "changelog/dialects/mysql.py",
        r'r"(\d+)$"',
        r'r"(\d)$"',
        DIALECTS,
    ),
    Mutant(
        "changes of one commit of SQL Server compare by block only",
        "changelog/dialects/sqlserver.py",
        'F.shiftleft("_slot", 32) + serial',
        "serial",
        DIALECTS,
    ),
    Mutant(
        "a sequence column is ignored",
        "changelog/envelope.py",
        "event_position = F.when(ordered & number.isNotNull(), in_sequence).otherwise(event_position)",
        "pass",
        RULES,
    ),
    Mutant(
        "an event repeated after an erasure counts as new",
        "suppression/before_cutoff.py",
        "sent_again = placed & ",
        "sent_again = F.lit(False) & placed & ",
        SUPPRESSION,
    ),
    Mutant(
        "events of a new life are suppressed",
        "suppression/before_cutoff.py",
        'F.col(EVENT_ID)["offset"] < end, F.lit(False)',
        'F.col(EVENT_ID)["offset"] >= 0, F.lit(False)',
        SUPPRESSION,
    ),
    Mutant(
        "keys of late rows of an erased subject are not suppressed",
        "loop/suppression/suppress.py",
        "own_keys = flagged.where(BEFORE_CUTOFF).select(",
        "own_keys = flagged.where(BEFORE_CUTOFF).limit(0).select(",
        SUPPRESSION,
    ),
    Mutant(
        "late children of an erased subject stay",
        "loop/suppression/late_children.py",
        "retry_on_conflict()(part.remove, rows.withColumn(ACTION, F.lit(DELETE)), table_schema, {})",
        "0",
        SUPPRESSION,
    ),
    Mutant(
        "a masked row has the position of the cutoff",
        "erasure/masking.py",
        'end["ordinal"] + 1)',
        'end["ordinal"])',
        MASKED,
    ),
    Mutant(
        "masked rows are not saved before the removal",
        "loop/suppression/late_children.py",
        'self._keep(table_schema, children.select(f"{_ROW}.*", F.col("request").alias(REQUEST)))',
        "pass",
        MASKED,
    ),
    Mutant(
        "events of a backfill are not erased",
        "erasure/context.py",
        "readers = source_readers(spark, pipeline)",
        "readers = source_readers(spark, pipeline)[:1]",
        ("tests/erasure/test_removal.py", "-k", "backfill"),
    ),
    Mutant(
        "archived records with another naming are imported unchanged",
        "loop/import_files.py",
        " and manifest.read_as == self._read_as",
        "",
        IMPORTED,
    ),
    Mutant(
        "a manifest whose parts an erasure removed counts no records",
        "loop/import_files.py",
        "if self._counted and counted == manifest.records else ()",
        'or [{"upto": manifest.upto_batch, "groups": []}]',
        IMPORTED,
    ),
    Mutant(
        "capture does not continue where the import ended",
        "loop/import_files.py",
        "] = one.last_offset + 1",
        "] = one.last_offset",
        IMPORTED,
    ),
    Mutant(
        "temporary copies of archived events are not deleted",
        "backfill/archive_reading.py",
        "with deleted_afterwards(spark, path):",
        'with deleted_afterwards(spark, path + "/_temporary"):',
        AS_OF,
    ),
    Mutant(
        "a run that is far behind merges each batch alone",
        "loop/merge.py",
        " or (more and not self._slices.is_full(self.merged, last))",
        "",
        FAR_BEHIND,
    ),
    Mutant(
        "empty records of the archive are emptied again",
        "archive/emptying.py",
        "pc.and_not(pc.is_valid(at), _is_empty(records))",
        "pc.is_valid(at)",
        EMPTIED,
    ),
    Mutant(
        "an archive object is removed that another run may still name",
        "archive/erasing.py",
        "if listed.key in leftovers.covering_manifests:",
        "if renewed[listed.key] != _:",
        ARCHIVE,
    ),
    Mutant(
        "old versions of the archive's manifests stay",
        "archive/erasing.py",
        "versions=versions + store.remove(past)",
        "versions=versions",
        ARCHIVE,
    ),
    Mutant(
        "objects of a running archive run are removed",
        "archive/erasing.py",
        'at = bisect_left(ends, (int(begin[2]), ""))',
        'at = min(bisect_left(ends, (int(begin[2]), "")), len(ends) - 1)',
        ARCHIVE,
    ),
    Mutant(
        "records written during an erasure get a null tombstone",
        "erasure/compacted_topics.py",
        'F.coalesce(F.col("theirs.holds"), F.lit(False)) &',
        "F.lit(False) &",
        COMPACTED_TOPICS,
    ),
    Mutant(
        "a value that an erased record had replaced is written again",
        "erasure/compacted_topics.py",
        ' & F.col("theirs.request").isNull() & ~is_current',
        " & ~is_current",
        COMPACTED_TOPICS,
    ),
    Mutant(
        "a null tombstone of an erasure restores the key",
        "changelog/envelope.py",
        'F.when(F.col("value").isNotNull() | ~has_header(ERASED), F.col("key"))',
        'F.col("key")',
        COMPACTED_TOPICS,
    ),
    Mutant(
        "compacted files are due again",
        "delta/compaction.py",
        "// (2 * LARGE))",
        "// (LARGE // 4))",
        FILES_DUE,
    ),
    Mutant(
        "records prefetched from a deleted topic are taken for those of the new one",
        "sources/kafka.py",
        "if any(self._ids.get(topic, id_) != id_ for topic, id_ in ids.items()):",
        "if not ids:",
        KAFKA,
    ),
    Mutant(
        "a column that is dropped lives on",
        "evolution/lives.py",
        "before[column.name].end = version.since",
        "before[column.name].end = None",
        LIVES,
    ),
    Mutant(
        "a renamed column is another one",
        "evolution/changes.py",
        "return _has_both_numbers(before, after) and before.number == after.number",
        "return False",
        LIVES,
    ),
    Mutant(
        "a column that is dropped and added in one step is the same",
        "evolution/changes.py",
        "return not _has_both_numbers(before, after) and before.name == after.name",
        "return before.name == after.name",
        EXAMPLES,
    ),
    Mutant(
        "a column in another case is another one",
        "evolution/changes.py",
        "caseless(before.name) == caseless(after.name)\n\n\ndef _altered(",
        "before.name == after.name\n\n\ndef _altered(",
        LIVES,
    ),
    Mutant(
        "an expression computes no column",
        "evolution/changes.py",
        "return frozenset(new.name for _, new in matching.same if new.number in cause.numbers)",
        "return frozenset()",
        LIVES,
    ),
    Mutant(
        "rows of a dropped relation are those of the new one",
        "evolution/lives.py",
        "self.begin = self.gone_since or version.since",
        "self.begin = None",
        LIVES,
    ),
    Mutant(
        "a relation begins with its message, below which it has rows",
        "evolution/lives.py",
        "self.begin = self.gone_since or version.since",
        "self.begin = version.since",
        EXAMPLES,
    ),
    Mutant(
        "the fill of an event counts more than that of the source's catalog",
        "evolution/lives.py",
        "self.told_fill or self.fill",
        "self.fill",
        EXAMPLES,
    ),
    Mutant(
        "the key of the first definition is in force from its message on",
        "evolution/lives.py",
        "None if is_first else since",
        "since",
        EXAMPLES,
    ),
    Mutant(
        "the columns of a key are in force under their first names",
        "evolution/life.py",
        "tuple(self.columns[life].name(at) for life in era.lives)",
        "era.columns",
        LIVES,
    ),
    Mutant(
        "the first key that was in force is",
        "evolution/life.py",
        "for era in reversed(self.keys) if",
        "for era in self.keys if",
        LIVES,
    ),
    Mutant(
        "a life has one name",
        "evolution/life.py",
        "return self.names[max(len(_in_force(self.names, at)), 1) - 1].name",
        "return self.column",
        LIVES,
    ),
    Mutant(
        "a value passes types from before its position",
        "evolution/life.py",
        "return self.types[max(len(_in_force(self.types, at)), 1) - 1 :]",
        "return self.types",
        LIVES,
    ),
    Mutant(
        "no value is lost by an expression",
        "evolution/life.py",
        "return any(step.is_unknown for step in self.later_types(at)[1:])",
        "return False",
        EXAMPLES,
    ),
    Mutant(
        "a column whose name another one has had is shown",
        "evolution/life.py",
        "return any(since is not None and is_at_or_above(since, end) for since in taken)",
        "return False",
        EXAMPLES,
    ),
    Mutant(
        "the schemas of events count more than messages",
        "evolution/timeline.py",
        "found.append(_typed(told, version, named))",
        "found.append(version)",
        EXAMPLES,
    ),
    Mutant(
        "a repeated message executes its expression again",
        "evolution/timeline.py",
        "if version.origin is not Origin.TOLD or delivery not in delivered:",
        "if True:",
        EXAMPLES,
    ),
    Mutant(
        "columns that the connector adds are gone at each message",
        "evolution/timeline.py",
        "if not added:",
        "if True:",
        EXAMPLES,
    ),
    Mutant(
        "rows that CREATE TABLE AS writes have no columns",
        "evolution/timeline.py",
        "early.append(version)",
        "pass",
        EXAMPLES,
    ),
    Mutant(
        "the order in which equal versions arrive counts",
        "evolution/timeline.py",
        "for at in sorted(by_place):",
        "for at in by_place:",
        LIVES,
    ),
    Mutant(
        "a column reads its fill in events from after its drop",
        "evolution/readings.py",
        "if is_at_or_above(at, life.begin) and not life.is_alive(at):",
        "if False:",
        LIVES,
    ),
    Mutant(
        "a column that was added has no value in events from before",
        "evolution/readings.py",
        "return Means.VALUE if life.is_alive(at) else Means.FILL",
        "return Means.VALUE if life.is_alive(at) else Means.NULL",
        LIVES,
    ),
    Mutant(
        "rows of a dropped relation are read",
        "evolution/readings.py",
        "    if not is_at_or_above(at, now.begin):\n        return Means.GONE\n",
        "",
        EXAMPLES,
    ),
    Mutant(
        "an event changes a type that events have shown",
        "evolution/type_steps.py",
        "(step.is_shown and not last.is_shown)",
        "step.is_shown",
        TYPES,
    ),
    Mutant(
        "an expression that leaves the type computes nothing",
        "evolution/type_steps.py",
        "if step.is_unknown or step.source_type not in",
        "if step.source_type not in",
        EXAMPLES,
    ),
    Mutant(
        "types that look alike in events hold one value alike",
        "evolution/type_steps.py",
        "return not kept and before.source_type != after.source_type",
        "return False",
        TYPES,
    ),
    Mutant(
        "a computed value tells the one before it",
        "evolution/type_steps.py",
        "if any(step.type is None for step in steps) or are_lost(steps):",
        "if any(step.type is None for step in steps):",
        TYPES,
    ),
    Mutant(
        "computed values are kept",
        "evolution/type_steps.py",
        "return not are_lost(steps) and all(",
        "return all(",
        TYPES,
    ),
    Mutant(
        "a value that has passed other types passes the newest ones only",
        "evolution/type_steps.py",
        "return None if number is None else tuple(types[number:])",
        "return tuple(types[number or 0 :])",
        REVISED,
    ),
    Mutant(
        "rows of a dropped relation are not missed when it turns out not to be dropped",
        "evolution/revisions.py",
        "for b in bounds if _is_back(before, after, b[0])]",
        "for b in () if _is_back(before, after, b[0])]",
        REVISED,
    ),
    Mutant(
        "events that turn out to have had another key are not missed",
        "evolution/revisions.py",
        "for b in bounds if _is_other_key(before, after, b[0])]",
        "for b in () if _is_other_key(before, after, b[0])]",
        EXAMPLES,
    ),
    Mutant(
        "values that only the events tell are not missed",
        "evolution/revisions.py",
        "if piece.source is Source.EVENTS\n    ]",
        "if False\n    ]",
        REVISED,
    ),
    Mutant(
        "a value is null where its stored form tells less than its event",
        "evolution/revisions.py",
        "None if rest is None or (are_lost(left) and not are_lost(types)) else left",
        "None if rest is None else left",
        REVISED,
    ),
    Mutant(
        "rows that two columns told apart stay when these turn out to be one",
        "evolution/revisions.py",
        '"rows had another key": [*keys, *parted],',
        '"rows had another key": keys,',
        REVISED,
    ),
    Mutant(
        "a message changes a type that events show in another form",
        "evolution/type_steps.py",
        "return may_show(shown.type, told.type)",
        "return False",
        REVISED,
    ),
    Mutant(
        "a value that an expression computes stays",
        "evolution/revisions.py",
        "case _ if life.loses(begin):",
        "case _ if False:",
        REVISED,
    ),
    Mutant(
        "the value of a gone column is revised",
        "evolution/revisions.py",
        "case Means.NULL:\n            return Piece(begin, end, Source.CONSTANT)",
        "case Means.NULL if False:\n            return Piece(begin, end, Source.CONSTANT)",
        REVISED,
    ),
    Mutant(
        "rows keep the fill of a default that was not the first",
        "evolution/revisions.py",
        "is_kept = is_dropped or is_same",
        "is_kept = True",
        SEEN,
    ),
    Mutant(
        "a drop alters rows that lack the column anyway",
        "evolution/revisions.py",
        "is_kept = is_dropped or is_same",
        "is_kept = is_same",
        SEEN,
    ),
    Mutant(
        "a dropped column of a keyless table keeps its stored values",
        "evolution/revisions.py",
        "if life.end is not None and not keeps_dropped:",
        "if False:",
        SEEN,
    ),
    Mutant(
        "types that can't be undone are",
        "evolution/revisions.py",
        "    if not are_reversible(passed):\n        return piece\n",
        "",
        TYPES,
    ),
    Mutant(
        "events are read under the name that another column has now",
        "evolution/followed.py",
        "if _is_shown(life, now) and _has_name(life, name, at))",
        "if _has_name(life, name, at))",
        FOLLOWED,
    ),
    Mutant(
        "a column that the connector leaves out is added",
        "evolution/followed.py",
        "and life.end is None and _is_sent(life, versions)",
        "and life.end is None",
        FOLLOWED,
    ),
    Mutant(
        "a relation that was dropped goes on under the next name",
        "evolution/followed.py",
        "if version.cause.tag != DROP_TABLE:",
        "if True:",
        FOLLOWED,
    ),
    Mutant(
        "a renamed relation is a new one",
        "evolution/followed.py",
        "if former != name:",
        "if False:",
        FOLLOWED,
    ),
    Mutant(
        "hashes forget the first name of a renamed column",
        "evolution/followed.py",
        "first = column.hashed_name or column.name",
        "first = column.name",
        FOLLOWED,
    ),
    Mutant(
        "two columns have one name in hashes",
        "evolution/followed.py",
        "    if column.name in taken and not column.hashed_name\n",
        "    if False\n",
        FOLLOWED,
    ),
    Mutant(
        "the key is known by its former names",
        "evolution/followed.py",
        "return None if None in names else tuple(name for name in names if name is not None)",
        "return tuple(key)",
        FOLLOWED,
    ),
    Mutant(
        "rows from before read null where the catalog holds a value",
        "evolution/ddl_version.py",
        'if column["missing"] is not None:',
        "if False:",
        MESSAGES,
    ),
    Mutant(
        "columns that a publication adds were null before",
        "evolution/ddl_version.py",
        "if tag in _PUBLISHES or (",
        "if (",
        MESSAGES,
    ),
    Mutant(
        "columns that are not sent are columns",
        "evolution/ddl_version.py",
        'for column in message["columns"] if column["sent"])',
        'for column in message["columns"])',
        MESSAGES,
    ),
    Mutant(
        "a change that is left out is without effect though rows are wrong without it",
        "evolution/schema_policy.py",
        "return Outcome.REFUSED if is_wrong else Outcome.IGNORED",
        "return Outcome.IGNORED",
        POLICY,
    ),
    Mutant(
        "a policy that keeps dropped columns adds them again",
        "evolution/schema_policy.py",
        "if not isinstance(change, AddColumn) or name not in held:",
        "if True:",
        POLICY,
    ),
    Mutant(
        "a kept column gets another type whatever the policy is",
        "evolution/schema_policy.py",
        "elif has_other_type(held[name], columns[name]):",
        "elif False:",
        POLICY,
    ),
    Mutant(
        "a lenient policy loses values",
        "evolution/schema_policy.py",
        "return Outcome.APPLIED if _keeps_values(change) else Outcome.REFUSED",
        "return Outcome.APPLIED",
        POLICY,
    ),
    Mutant(
        "a key without a schema that leaves out a null is another one",
        "evolution/keys.py",
        "is_part = not is_whole and set(key) < set(in_force)",
        "is_part = False",
        KEY_NAMES,
    ),
    Mutant(
        "a column that messages tell is taken though its policy ignores new ones",
        "evolution/told/alteration.py",
        "return self._applies(AddColumn.kind, column.name)",
        "return True",
        TOLD_POLICY,
    ),
    Mutant(
        "a column that the table keeps ends where messages drop it",
        "evolution/told/alteration.py",
        "is_partial=bool(kept)",
        "is_partial=False",
        TOLD_POLICY,
    ),
    Mutant(
        "another policy decides anew on what was decided",
        "evolution/told/admission.py",
        "elif version.since in taken:",
        "elif False:",
        TOLD_POLICY,
    ),
    Mutant(
        "a renamed column that is kept and the new one have one number",
        "evolution/told/alteration.py",
        "if column.number is None or column.number not in self._table.numbers:",
        "if True:",
        TOLD_POLICY,
    ),
    Mutant(
        "a renamed personal column is personal no more",
        "suppression/personal_names.py",
        "if renamed is not None:",
        "if False:",
        PERSONAL_NAMES,
    ),
    Mutant(
        "messages are not followed",
        "loop/told_tables.py",
        "if admission.versions != entry.told_versions:",
        "if False:",
        TOLD,
    ),
    Mutant(
        "a key that messages tell is not in force",
        "loop/told_tables.py",
        "if key != entry.table_schema.key:",
        "if False:",
        TOLD_KEYS,
    ),
    Mutant(
        "rows of a dropped relation stay",
        "reconcile/table_revisions.py",
        "part.truncate(position_literal(begin))",
        "pass",
        TOLD,
    ),
    Mutant(
        "events after a drop show nothing until a message comes",
        "evolution/timeline.py",
        "return (*found, *early)",
        "return tuple(found)",
        EXAMPLES,
    ),
    Mutant(
        "what events show between two drops goes to the table after the second",
        "evolution/timeline.py",
        "if version.cause.is_unreadable or version.cause.drops_table:",
        "if version.cause.is_unreadable:",
        EXAMPLES,
    ),
    Mutant(
        "rows that late messages can't revise are not said",
        "reconcile/refolds.py",
        'return refold.reason if any(_holds(stored, lost) for lost in refold.ranges) else ""',
        'return ""',
        LATE_MESSAGES,
    ),
    Mutant(
        "events are read by the names that they have",
        "loop/table_schemas.py",
        "carried if told is None else columns_of_group(group, carried, columns, told, spelling)",
        "carried",
        TOLD_NAMES,
    ),
    Mutant(
        "late events of a former key leave the rows below them",
        "reconcile/formerly_keyed.py",
        "return survivors(entries, known, types)",
        "return entries",
        LOST_KEYS,
    ),
    Mutant(
        "a row that was removed before a late event of its key is forgotten",
        "reconcile/formerly_keyed.py",
        "is_kept = number <= F.least(rows, removals, F.greatest(old_rows, old_removals))",
        "is_kept = F.lit(False)",
        LOST_KEYS,
    ),
    Mutant(
        "rows leave no tombstone of a key that is gone",
        "lakehouse/rekeying.py",
        "    stored.tombstones.write(_old_facts(rows, stored, before, former))\n    if not after.key:\n",
        "    if not after.key:\n",
        LOST_KEYS,
    ),
    Mutant(
        "a column is read by a name that another one had before, though no message tells of it yet",
        "batches/decoding_parts.py",
        "if keeps_name(name := names.get(c.name, c.name), lives)]",
        "if (name := names.get(c.name, c.name))]",
        ("tests/batches/test_decoding_parts.py",),
    ),
    Mutant(
        "values are read by a type that the table does not have at their positions",
        "batches/decoding_parts.py",
        "unfit=_unfit(shown, newest))",
        "unfit=frozenset())",
        ("tests/batches/test_decoding_parts.py",),
    ),
    Mutant(
        "a new column of the key is ignored where new columns are",
        "batches/policies/batch_policy.py",
        "Outcome.REFUSED if name in in_keys else Outcome.IGNORED",
        "Outcome.IGNORED",
        ("tests/loop/test_schema_policies.py::test_a_new_column_of_the_key_is_refused_where_new_columns_are_excluded",),
    ),
    Mutant(
        "a personal column that newer events lack is not told of",
        "suppression/personal_names.py",
        "if life.end is not None and life.end not in begins]",
        "if life.end is not None and life.end in begins]",
        PERSONAL_NAMES,
    ),
    Mutant(
        "an error that ends a run does not wait for the tables that are being merged",
        "loop/table_threads.py",
        "            one.cancel()\n        wait(merging)\n",
        "            one.cancel()\n",
        ("tests/loop/test_table_threads.py",),
    ),
]


def misplaced(mutants: list[Mutant]) -> list[str]:
    """Returns a sentence for each mutant whose text is not in its file, or more than once."""
    texts = {m.file: (ROOT / "ingest" / m.file).read_text(encoding="utf-8") for m in mutants}
    times = ((m, texts[m.file].count(m.before)) for m in mutants)
    return [f"{m.file} holds the text of {m.fault!r} {n} times" for m, n in times if n != 1]


def require_sound(mutants: list[Mutant]) -> None:
    """Exits with a message if a text is not in its file exactly once, or if a mutant has no tests."""
    if found := misplaced(mutants):
        raise SystemExit("\n".join(found))
    for tests in {m.tests for m in mutants}:
        with redirect_stdout(StringIO()):
            code = pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *tests])
        if code != pytest.ExitCode.OK:
            raise SystemExit(f"pytest finds no tests by {' '.join(tests)!r}")


def survives(mutant: Mutant, folder: Path) -> bool:
    """Returns True if the tests of the mutant pass."""
    copy = folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    for part in ("ingest", "tests"):
        shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    file = copy / "ingest" / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(mutant.before, mutant.after), encoding="utf-8")
    for name in [n for n in sys.modules if n.split(".")[0] in ("ingest", "tests") and n != __name__]:
        del sys.modules[name]
    os.chdir(copy)
    sys.path.insert(0, str(copy))
    output = StringIO()
    with redirect_stdout(output):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *mutant.tests])
    sys.path.remove(str(copy))
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"the tests of {mutant.fault!r} did not run:\n{output.getvalue()[-2000:]}")
    return code == pytest.ExitCode.OK


def main() -> None:
    """Exits with 1 if a mutant survives. Words on the command line select the faults that contain all of them."""
    chosen = [m for m in MUTANTS if all(word in m.fault for word in sys.argv[1:])]
    require_sound(chosen)
    os.environ.setdefault("FUZZ_CASES", "100")
    stop = SparkSession.stop
    SparkSession.stop = lambda _: None  # type: ignore[method-assign,assignment]
    console = Console(highlight=False, file=sys.__stdout__)
    survivors = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number, mutant in enumerate(chosen, start=1):
            survived = survives(mutant, Path(folder))
            survivors += [mutant.fault] if survived else []
            console.print(f"{number}/{len(chosen)} {'SURVIVED' if survived else 'caught'}: {mutant.fault}")
        os.chdir(ROOT)
    if session := SparkSession.getActiveSession():
        stop(session)
    console.print(f"{len(chosen) - len(survivors)} of {len(chosen)} caught")
    raise SystemExit(1 if survivors else 0)


if __name__ == "__main__":
    main()
