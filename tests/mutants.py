"""Faults put into the code, one at a time: the tests must catch each. `make mutants` runs them all.

A mutant is a copy of the project in which one text is another. It is caught where the tests named beside it fail. All
run in this process, one after the other, on one Spark session: starting one takes longer than most of the tests.
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
MERGE = ("tests/property/test_merge.py", "-k", "reference and 7")
PREPARED = ("tests/spark/test_prepared.py",)
FEW = ("tests/property/test_merge.py", "-k", "reference and few")
ONE_BATCH = ("tests/property/test_merge.py", "-k", "reference and small")
BATCHES = ("tests/merge/test_rules.py", "-k", "record")
TRUNCATES = ("tests/property/test_merge.py", "-k", "truncates")
PLAIN_JSON = ("tests/property/test_plain_json.py",)
CRASHES = ("tests/property/test_crashes.py",)
TWO_RUNS = ("tests/property/test_two_runs.py", "-k", "ends_it or paid")
DOUBLED = ("tests/loop/test_duplicate_delivery.py", "-k", "another")
QUALITY = ("tests/quality/test_accounting.py",)
ORDER = ("tests/loop/test_order.py",)
FENCE = ("tests/suppression/test_suppression.py", "-k", "old_life or photo")
EMPTIED = ("tests/archive/test_emptying.py",)
ARCHIVE = ("tests/archive/test_erasing.py", "-k", "(nowhere or meanwhile or under_way) and not plain")
RULES = ("tests/merge/test_rules.py", "-k", "not record")
MASKED = ("tests/erasure/test_masking.py", "-k", "without_what_was_personal")
COMPACTED = ("tests/erasure/test_compacted_topics.py", "-k", "loses_nothing")
ADOPTED = (
    "tests/archive/test_import_files.py",
    "-k",
    "another_naming or emptied_is_read or (what_it_was and turns2)",
)
AS_OF = ("tests/archive/test_as_of.py", "-k", "bronze_says and more0")
FAR_BEHIND = ("tests/backfill/test_batch_is_stream.py", "-k", "far_behind")
FOLDED = ("tests/delta/test_files_due.py",)
NEWEST = ("tests/delta/test_snapshot_cache.py",)
CONSUMED = ("tests/sources/test_kafka_source.py",)
LATE = ("tests/property/test_merge.py", "-k", "late")
REPEATED = ("tests/batches/test_repeated_tombstones.py",)
AT_HAND = ("tests/lakehouse/test_bronze.py",)
IN_TURNS = ("tests/delta/test_compaction.py", "-k", "slice")
NAMED = ("tests/changelog/test_reserved_names.py", "-k", "refused")
QUARANTINE = ("tests/lakehouse/test_quarantine.py",)
SUMMARY = ("tests/lakehouse/test_bronze_summary.py",)
SUBJECT_INDEX = ("tests/erasure/test_subject_index.py",)


@dataclass(frozen=True)
class Mutant:
    """`fault`: what goes wrong. `before` stands in `file` exactly once. `tests`: what catches it, as pytest is told."""

    fault: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...] = MERGE


MUTANTS = [
    Mutant(
        "a slice waits for all tables to be folded",
        "loop/merge.py",
        "if self._deferred_compactions % FILES_PER_SIZE:",
        "if False:",
        IN_TURNS,
    ),
    Mutant(
        "a batch waits for its rows and its tombstones to be folded",
        "loop/writing.py",
        "or stored.tombstones.compact()",
        "| stored.tombstones.compact()",
        IN_TURNS,
    ),
    Mutant(
        "a row is handed out that the parser fills again",
        "jvm/java/ingest/json/JsonReader.java",
        "found.copy()",
        "found",
        PLAIN_JSON,
    ),
    Mutant(
        "what is no text is taken for one where eight bytes are read at once",
        "jvm/java/ingest/json/PlainJson.java",
        "letters |= eight & (found & -found) - 1;",
        "",
        PLAIN_JSON,
    ),
    Mutant(
        "keys of one millisecond are one key",
        "merge/actions.py",
        "F.to_json(F.struct(*values), LOSSLESS_JSON)",
        'F.to_json(F.struct(*values), {"ignoreNullFields": "false"})',
        BATCHES,
    ),
    Mutant(
        "rows of one millisecond are one row",
        "changelog/change.py",
        'LOSSLESS_JSON | {"ignoreNullFields": "true"}',
        "{}",
        RULES,
    ),
    Mutant(
        "of a field that is named twice the last value counts",
        "merge/images.py",
        '~are_parsed(parsed_images(value.cast("string"))) if reader.may_repeat_fields else F.lit(False)',
        "F.lit(False)",
        RULES,
    ),
    Mutant(
        "a number of any length is taken for exact",
        "evolution/inference.py",
        "lambda digits: ~_is_exact(digits)",
        "lambda digits: F.lit(False)",
        BATCHES,
    ),
    Mutant(
        "where a row moved to is forgotten",
        "lakehouse/tombstones.py",
        "_newest_per_move(found.where(F.col(MOVED_TO).isNotNull()))",
        "_newest_per_move(found.where(F.col(MOVED_TO).isNull()))",
        LATE,
    ),
    Mutant(
        "of what a move carried over, what was told first counts",
        "merge/partial_rows.py",
        "F.struct(before, F.coalesce(told_position, before))",
        "F.struct(before, F.when(told_position.isNull(), before))",
        LATE,
    ),
    Mutant(
        "a row is followed to one key only",
        "reconcile/column_facts.py",
        "late = stored.where(F.col(MOVED_AT).isNotNull())",
        "late = stored.where(F.lit(False))",
        LATE,
    ),
    Mutant(
        "an event older than its row's move concerns nobody else",
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
        "tombstones are forgotten",
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
        "the oldest of a batch wins",
        "merge/compaction.py",
        "F.col(column).desc()",
        "F.col(column).asc()",
    ),
    Mutant(
        "of an image that is named twice the first one counts",
        "batches/group_stats.py",
        'F.bool_and(F.col("_told").isNotNull())',
        "F.lit(True)",
        ("tests/loop/test_duplicate_delivery.py",),
    ),
    Mutant(
        "what a tally isn't sure of counts as known",
        "batches/batch_stats.py",
        'stats["seen"] is not None',
        "bool(stats)",
        ("tests/property/test_batch_stats.py",),
    ),
    Mutant(
        "a position is told by its first fields alone",
        "merge/compaction.py",
        "tuple(_POSITION_FIELDS)",
        "tuple(_POSITION_FIELDS[:2])",
        ("tests/property/test_compaction.py",),
    ),
    Mutant(
        "a change that can't be applied stands for its key",
        "merge/compaction.py",
        "key), _REFUSED_ID)",
        "key))",
        ("tests/property/test_compaction.py",),
    ),
    Mutant(
        "batch order breaks ties",
        "changelog/position.py",
        '        offset.alias("offset"),',
        '        F.lit(0).cast("bigint").alias("offset"),',
    ),
    Mutant(
        "a snapshot read beats a change at the same position",
        "changelog/position.py",
        'F.when(read, F.when(source_major.isNull(), unplaced).otherwise(0)).otherwise(1).alias("streamed")',
        'F.lit(1).alias("streamed")',
        RULES,
    ),
    Mutant(
        "the position of a column is ignored",
        "merge/partial_rows.py",
        'F.when(older, F.when(~entry["before"], entry["position"])).otherwise(position)',
        "position",
    ),
    Mutant(
        "a column crosses a delete",
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
        "a moved row carries nothing",
        "reconcile/partial_rows.py",
        "if followed is None and not (summary.moves and (summary.names or key_changes)):",
        "if True:",
    ),
    Mutant(
        "a moved row leaves its old key behind",
        "merge/moves.py",
        "moves = F.col(CODE).isNull() & has_old_key & differs",
        "moves = F.lit(False)",
    ),
    Mutant(
        "a truncate clears what came after it",
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
        "a null tombstone stands after what follows it",
        "changelog/tombstone_placement.py",
        "rowsBetween(Window.unboundedPreceding, -1)",
        "rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)",
        ONE_BATCH,
    ),
    Mutant(
        "a null tombstone is taken to repeat whatever delete stands before it",
        "batches/group_stats.py",
        '(before["offset"] + 1 == F.col("offset")) & (before["key"] == F.col("key"))',
        'before["offset"] + 1 == F.col("offset")',
        REPEATED,
    ),
    Mutant(
        "a null tombstone is taken to repeat a delete that stands anywhere before it",
        "batches/group_stats.py",
        '(before["offset"] + 1 == F.col("offset")) & (before["key"] == F.col("key"))',
        'before["key"] == F.col("key")',
        REPEATED,
    ),
    Mutant(
        "a source's column may have any name",
        "evolution/policies.py",
        "if is_reserved(name):",
        "if False:",
        NAMED,
    ),
    Mutant(
        "a batch at hand is given for several",
        "lakehouse/bronze_batches.py",
        "(after + 1, through_batch) == (cached[0], cached[0])",
        "through_batch == cached[0]",
        AT_HAND,
    ),
    Mutant(
        "a run delivered again counts twice",
        "merge/keyless.py",
        '(F.col("_first") == 1) | ~is_placed',
        "F.lit(True)",
        RULES,
    ),
    Mutant(
        "a debt is not kept",
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
        "the account of a slice that died stands for those after it",
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
        "a debt is read after another run has paid it",
        "loop/writing.py",
        "        stored.pending.require_pinned_snapshot()",
        "        pass",
        TWO_RUNS,
    ),
    Mutant(
        "a row goes before its tombstone is there",
        "loop/writing.py",
        "user_metadata, before_commit=tombstones.result)",
        "user_metadata)",
        (*CRASHES, "-k", "tombstone"),
    ),
    Mutant(
        "what stands where its row does is taken for the same",
        "reconcile/whole_rows.py",
        'F.col("_ingest_state_content") == F.col("_ingest_stored_content")',
        "F.lit(True)",
        DOUBLED,
    ),
    Mutant(
        "many changes are held against no tombstone",
        "reconcile/whole_rows.py",
        "stored.tombstones.all()",
        "stored.tombstones.all().limit(0)",
    ),
    Mutant(
        "what stands where its row does is the same without a look at it",
        "loop/writing.py",
        "in_background(changeset.duplicate_check or _no_check)",
        "in_background(_no_check)",
        DOUBLED,
    ),
    Mutant(
        "tombstones of a verdict that doesn't hold count",
        "loop/writing.py",
        "write(changeset.tombstones, before_commit=checked, is_small=changeset.is_small)",
        "write(changeset.tombstones, is_small=changeset.is_small)",
        DOUBLED,
    ),
    Mutant(
        "where a log goes back between two batches nobody looks",
        "batches/group_stats.py",
        "one.progress[1] <= other.progress[0]",
        "one.progress[1] is not None",
        (*ORDER, "-k", "counted"),
    ),
    Mutant(
        "what is sent again is written again",
        "merge/actions.py",
        "takes_effect & ~deleted & is_same_source_position(position, row)",
        "F.lit(False)",
        QUALITY,
    ),
    Mutant(
        "an event that waits in quarantine is set aside once more",
        "lakehouse/quarantine.py",
        "if any(r.may_be_in(f) for r in ranges)",
        "if all(r.may_be_in(f) for r in ranges) and not ranges",
        QUARANTINE,
    ),
    Mutant(
        "a summary of bronze goes on without what it knew",
        "lakehouse/bronze_summary.py",
        "_higher(self._ends.get(end.place), end)",
        "end",
        SUMMARY,
    ),
    Mutant(
        "events that came since the last erasure are not searched for keys that were fenced before",
        "erasure/erased_events.py",
        "unsearched & {*index.spans_with(self._ledger.keys())} if unsearched else set[Span]()",
        "set[Span]()",
        SUBJECT_INDEX,
    ),
    Mutant(
        "keys that events bring are not looked for in the rest of the history",
        "erasure/erased_events.py",
        "if self._ledger.last_number() == last_entry:",
        "if self._ledger.last_number() >= last_entry:",
        SUBJECT_INDEX,
    ),
    Mutant(
        "a partial image that is sent again is written again",
        "merge/partial_rows.py",
        "is_same = is_same | _is_duplicate(stored)",
        "pass",
        QUALITY,
    ),
    Mutant(
        "what is older than the horizon is applied",
        "merge/actions.py",
        "if horizon is not None:",
        "if False:",
        ORDER,
    ),
    Mutant(
        "a log that begins anew is not noticed",
        "loop/position_regression.py",
        "if regressed.isEmpty():",
        "if True:",
        ORDER,
    ),
    Mutant(
        "a connector that starts again is a restart",
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
        "the row that an update of a few replaces stays",
        "reconcile/action_counts.py",
        "takes_effect(include_tied=False), F.col(LOCATION)",
        "F.col(ACTION) == DELETE, F.col(LOCATION)",
        FEW,
    ),
    Mutant(
        "the row where a doubled event of a few stands goes",
        "reconcile/action_counts.py",
        "takes_effect(include_tied=False), F.col(LOCATION)",
        "takes_effect(), F.col(LOCATION)",
        FEW,
    ),
    Mutant(
        "a plan that sends rows from task to task is asked again",
        "jvm/java/ingest/prepared/PreparedQuery.java",
        "isRepeatable(executed) ? ",
        "true ? ",
        PREPARED,
    ),
    Mutant(
        "two tasks have the use of one copy",
        "jvm/java/ingest/prepared/Copies.java",
        "free.poll()",
        "free.peek()",
        PREPARED,
    ),
    Mutant(
        "what changed is in the table once more",
        "jvm/java/ingest/delta/SmallWrite.java",
        "kind.changeType >= 0 && ",
        "kind.changeType < 0 && ",
        ("tests/delta/test_small_rows.py",),
    ),
    Mutant(
        "what a commit under way has written goes with old versions",
        "upkeep/upkeep.py",
        "vacuum.remove_old_versions(self._spark, [path])",
        "vacuum.remove_old_versions(self._spark, [path], 0)",
        ("tests/upkeep/test_upkeep.py",),
    ),
    Mutant(
        "of many keys some are not looked for",
        "lakehouse/page_index.py",
        "range(0, values.size(), _VALUES_A_FILTER)",
        "range(_VALUES_A_FILTER, values.size(), _VALUES_A_FILTER)",
        ("tests/delta", "tests/lakehouse"),
    ),
    Mutant(
        "a row that is written together with others comes back to life",
        "delta/delta_table.py",
        "removed = [self._delta.remove_without_data_change(f.action) for f in files]",
        "removed = [self._delta.remove_without_data_change(f.action) for f in files[1:]]",
        ("tests/delta", "tests/lakehouse"),
    ),
    Mutant(
        "an epoch is as old as the one before",
        "changelog/position.py",
        "F.when(timestamp >= F.lit(begin), 1).otherwise(0)",
        "F.lit(0)",
        RULES,
    ),
    Mutant(
        "a sequence column orders nothing",
        "changelog/envelope.py",
        "event_position = F.when(ordered & number.isNotNull(), in_sequence).otherwise(event_position)",
        "pass",
        RULES,
    ),
    Mutant(
        "an event that is sent again after an erasure is taken for a new one",
        "suppression/before_cutoff.py",
        "sent_again = placed & ",
        "sent_again = F.lit(False) & placed & ",
        FENCE,
    ),
    Mutant(
        "a new life is kept away too",
        "suppression/before_cutoff.py",
        'F.col(EVENT_ID)["offset"] < end, F.lit(False)',
        'F.col(EVENT_ID)["offset"] >= 0, F.lit(False)',
        FENCE,
    ),
    Mutant(
        "the keys of late rows of an erased subject are not fenced",
        "loop/suppress.py",
        "own_keys = flagged.where(BEFORE_CUTOFF).select(",
        "own_keys = flagged.where(BEFORE_CUTOFF).limit(0).select(",
        FENCE,
    ),
    Mutant(
        "rows that came before anything told whose they are stay",
        "loop/late_children.py",
        "retry_on_conflict()(part.remove, rows.withColumn(ACTION, F.lit(DELETE)), table_schema, {})",
        "0",
        FENCE,
    ),
    Mutant(
        "a masked row stands where the old life ends",
        "erasure/masking.py",
        '"row": end["ordinal"] + 1,',
        '"row": end["ordinal"],',
        MASKED,
    ),
    Mutant(
        "nobody writes down what is left of a row before it goes",
        "loop/late_children.py",
        'self._keep(table_schema, children.select(f"{_ROW}.*", F.col("request").alias(REQUEST)))',
        "pass",
        MASKED,
    ),
    Mutant(
        "what a backfill has read stays",
        "erasure/removal.py",
        "self._readers = source_readers(spark, pipeline)",
        "self._readers = source_readers(spark, pipeline)[:1]",
        ("tests/erasure/test_removal.py", "-k", "backfill"),
    ),
    Mutant(
        "what was read by other names comes out of the archive as it is",
        "loop/import_files.py",
        " and manifest.read_as == self._read_as",
        "",
        ADOPTED,
    ),
    Mutant(
        "parts that an erasure has taken from a manifest count as none of its records",
        "loop/import_files.py",
        "if self._counted and counted == manifest.records else ()",
        'or [{"upto": manifest.upto_batch, "groups": []}]',
        ADOPTED,
    ),
    Mutant(
        "capture goes on anywhere but where adoption has ended",
        "loop/import_files.py",
        "] = one.last_offset + 1",
        "] = one.last_offset",
        ADOPTED,
    ),
    Mutant(
        "what is read of the archive for a point of the log stays",
        "backfill/archive_reading.py",
        "with deleted_afterwards(spark, path):",
        'with deleted_afterwards(spark, path + "/_temporary"):',
        AS_OF,
    ),
    Mutant(
        "who is far behind merges each batch by itself",
        "loop/merge.py",
        " or (more and not self._slices.is_full(self.merged, last))",
        "",
        FAR_BEHIND,
    ),
    Mutant(
        "the archive's records that are empty are emptied again",
        "archive/emptying.py",
        "pc.and_not(pc.is_valid(at), _is_empty(records))",
        "pc.is_valid(at)",
        EMPTIED,
    ),
    Mutant(
        "an object goes out of the archive though another run may name it yet",
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
        "what a run has written into the archive goes before it is named",
        "archive/erasing.py",
        'at = bisect_left(ends, (int(begin[2]), ""))',
        'at = min(bisect_left(ends, (int(begin[2]), "")), len(ends) - 1)',
        ARCHIVE,
    ),
    Mutant(
        "what comes in while tombstones are written is lost",
        "erasure/compacted_topics.py",
        'F.coalesce(F.col("theirs.holds"), F.lit(False)) &',
        "F.lit(False) &",
        COMPACTED,
    ),
    Mutant(
        "what an erased record had replaced is said again",
        "erasure/compacted_topics.py",
        ' & F.col("theirs.request").isNull() & ~is_current',
        " & ~is_current",
        COMPACTED,
    ),
    Mutant(
        "a tombstone that an erasure wrote brings the key back",
        "changelog/envelope.py",
        'F.when(F.col("value").isNotNull() | ~has_header(ERASED), F.col("key"))',
        'F.col("key")',
        COMPACTED,
    ),
    Mutant(
        "files that were written together are due again",
        "delta/compaction.py",
        "// (2 * LARGE))",
        "// (LARGE // 4))",
        FOLDED,
    ),
    Mutant(
        "a commit by another process is not seen",
        "delta/snapshot_cache.py",
        "and not self._files.exists(following)",
        "and following is not None",
        NEWEST,
    ),
    Mutant(
        "another table in the place of one is taken for it",
        "delta/snapshot_cache.py",
        "written == snapshot.logSegment().lastCommitFileModificationTimestamp()",
        "written",
        NEWEST,
    ),
    Mutant(
        "a log is listed at every look",
        "delta/snapshot_cache.py",
        "if not self._is_newest():",
        "if not self._is_newest() or True:",
        NEWEST,
    ),
    Mutant(
        "what was read ahead of a topic is taken for that of its successor",
        "sources/kafka.py",
        "if any(self._ids.get(topic, id_) != id_ for topic, id_ in ids.items()):",
        "if not ids:",
        CONSUMED,
    ),
]


def misplaced(mutants: list[Mutant]) -> list[str]:
    """Of mutants whose text is not in their file, or more than once, a sentence each."""
    texts = {m.file: (ROOT / "ingest" / m.file).read_text(encoding="utf-8") for m in mutants}
    times = ((m, texts[m.file].count(m.before)) for m in mutants)
    return [f"{m.file} holds the text of {m.fault!r} {n} times" for m, n in times if n != 1]


def require_sound(mutants: list[Mutant]) -> None:
    """Before hours are spent: each text is there once, and the tests beside it are found."""
    if found := misplaced(mutants):
        raise SystemExit("\n".join(found))
    for tests in {m.tests for m in mutants}:
        with redirect_stdout(StringIO()):
            code = pytest.main(["-q", "--collect-only", "-p", "no:cacheprovider", *tests])
        if code != pytest.ExitCode.OK:
            raise SystemExit(f"pytest finds no tests by {' '.join(tests)!r}")


def survives(mutant: Mutant, folder: Path) -> bool:
    """Whether the tests pass all the same."""
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
    said = StringIO()
    with redirect_stdout(said):
        code = pytest.main(["-x", "-q", "-p", "no:cacheprovider", *mutant.tests])
    sys.path.remove(str(copy))
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise SystemExit(f"the tests of {mutant.fault!r} did not run:\n{said.getvalue()[-2000:]}")
    return code == pytest.ExitCode.OK


def main() -> None:
    """Exits with 1 where a mutant survives. Words on the command line choose the faults that hold them."""
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
