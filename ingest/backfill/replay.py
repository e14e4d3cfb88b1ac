"""Replays changelog files into silver tables, through the same capture and merge as a stream."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from ingest.batches.rules import Rules
from ingest.changelog.accounting import COUNTS, Account
from ingest.changelog.change import quoted
from ingest.changelog.forms import Form
from ingest.changelog.naming import Naming
from ingest.changelog.origin import TableNaming
from ingest.errors import ConfigError
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.silver import Silver
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.merge.table_schema import TableSchema
from ingest.names import Lakehouse, path_segment
from ingest.sources.files import FileSource, Line, lines, shuffled
from ingest.tuning import DEFAULT_TUNING, Tuning
from ingest.values.render import json_object, rendered
from ingest.values.types import OutOfRange

Format = Literal["delta", "jsonl"]
_CASES_AT_ONCE = 2
_ACCOUNTS = "accounts.json"
_FOLDERS = ("bronze", "silver", "pending", "tombstones", "system", "tables")


@dataclass(frozen=True)
class Case:
    """One changelog: its files, the declarations in `tables.json`, and the folder of its lakehouse."""

    name: str
    events: tuple[Path, ...]
    tables: Path | None
    out: Path


@dataclass(frozen=True)
class Delivery:
    """How records are delivered: in batches of `batch_size` (0: all in one), in their order or shuffled by `seed`."""

    batch_size: int = 0
    seed: int | None = None
    any_order: bool = False

    def ordered(self, records: Sequence[Line]) -> Sequence[Line]:
        """Returns the records in the order of their delivery."""
        return records if self.seed is None else shuffled(records, self.seed, self.any_order)


def replay(
    spark: SparkSession, cases: Sequence[Case], delivery: Delivery, form: Format, tuning: Tuning = DEFAULT_TUNING
) -> Iterator[tuple[Case, dict[str, Any]]]:
    """Merges each case and writes `accounts.json` into its folder; yields each case with that file's content, in
    order."""
    with ThreadPoolExecutor(min(_CASES_AT_ONCE, len(cases)), thread_name_prefix="replay") as pool:
        summaries = pool.map(lambda case: _merge_case(spark, case, delivery, form, tuning), cases)
        yield from zip(cases, summaries, strict=True)


def _delete_results(out: Path) -> None:
    """Deletes the results of an earlier replay in the folder."""
    existing = {p.name for p in out.iterdir()} if out.is_dir() else set()
    if existing and not (_ACCOUNTS in existing and existing <= {_ACCOUNTS, *_FOLDERS}):
        raise ConfigError(
            f"{out} holds files that are not from a complete replay", "choose another --out, or delete the folder"
        )
    for name in sorted(existing - {_ACCOUNTS}):
        shutil.rmtree(out / name)
    (out / _ACCOUNTS).unlink(missing_ok=True)


def _merge_case(spark: SparkSession, case: Case, delivery: Delivery, form: Format, tuning: Tuning) -> dict[str, Any]:
    _delete_results(case.out)
    declarations = _read_declarations(case.tables)
    begin = {int(p): int(o) for p, o in declarations.get("start_offsets", {}).items()}
    records = [r for r in lines(case.events) if r.offset >= begin.get(r.partition, 0)]
    rules = replace(_rules(declarations), tuning=tuning)
    lakehouse = Lakehouse(str(case.out.resolve()))
    source = FileSource(delivery.ordered(records))
    size = delivery.batch_size or max(len(records), 1)
    bronze = Bronze(spark, lakehouse.bronze(case.name), rules.epochs, rules.names, rules.tuning)
    capture = Capture(spark, source, bronze, rules.naming, size)
    merge = Merge(spark, case.name, lakehouse, rules, bronze)
    accounts: list[Account] = []
    while capture.step():
        accounts += merge.step(capture.captured.batch)
    table_schemas = [entry.table_schema for entry in merge.tables.table_schemas.entries]
    summary = _summary(spark, case, lakehouse, records, accounts)
    summary["set_aside"] = {t: {"code": s.code, "reason": s.reason} for t, s in merge.set_aside.items()}
    summary["tables"] = _tables(spark, case, lakehouse, table_schemas, sorted(declarations.get("tables", {})), form)
    text = json.dumps(summary, ensure_ascii=False, indent=1)
    case.out.mkdir(parents=True, exist_ok=True)
    (case.out / _ACCOUNTS).write_text(text + "\n", encoding="utf-8")
    return summary


def _read_declarations(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        declarations = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} can't be read as JSON", "give a file such as tables.json") from error
    if not isinstance(declarations, dict):
        raise ConfigError(f"{path} holds no JSON object", 'write {"tables": {"schema.table": {"primary_key": […]}}}')
    return declarations


def _rules(declarations: Mapping[str, Any]) -> Rules:
    tables: dict[str, dict[str, Any]] = declarations.get("tables", {})
    topics: dict[str, set[str]] = {}
    for table, settings in tables.items():
        for topic in settings.get("topics", ()):
            topics.setdefault(topic, set()).add(table)
    columns = {t: s.get("columns", {}) for t, s in tables.items()}
    return Rules(
        naming=Naming(
            topic_tables=tuple(declarations.get("topic_tables", {}).items()),
            forms=tuple((topic, Form(form)) for topic, form in declarations.get("record_forms", {}).items()),
            sequences=tuple((t, s["sequence"]) for t, s in tables.items() if "sequence" in s),
            names=TableNaming(
                declarations.get("table_names", "schema.table"), frozenset(declarations.get("topic_tables", {}))
            ),
        ),
        primary_keys={t: tuple(s["primary_key"]) for t, s in tables.items() if "primary_key" in s},
        columns=columns,
        declared=columns,
        table_topics={topic: next(iter(names)) for topic, names in topics.items() if len(names) == 1},
        include_tables=declarations.get("include_tables"),
        exclude_tables=declarations.get("exclude_tables"),
        fold_case=bool(declarations.get("case_insensitive", False)),
        column_renames={t: s.get("rename", {}) for t, s in tables.items()},
        append_only=frozenset(t for t, s in tables.items() if s.get("append_only")),
        history=frozenset(t for t, s in tables.items() if s.get("history")),
        personal={t: frozenset(s["personal"]) for t, s in tables.items() if "personal" in s},
        epochs=tuple(datetime.fromisoformat(begin) for begin in declarations.get("epochs", ())),
        renamed=declarations.get("renamed", {}),
        stops_at_restart=declarations.get("restarts") == "stop",
        stops_at_two_partitions=declarations.get("keys_in_two_partitions", "offset") == "stop",
        times_out_of_range=OutOfRange(declarations.get("times_out_of_range", OutOfRange.CLAMP)),
    )


def _summary(
    spark: SparkSession, case: Case, lakehouse: Lakehouse, records: Sequence[Line], accounts: Sequence[Account]
) -> dict[str, Any]:
    summary: dict[str, Any] = {c: sum(getattr(a, c) for a in accounts) for c in COUNTS}
    # Capture skips coordinates that bronze already holds; they count as superseded.
    repeated = max(0, len(records) - summary["read"])
    summary["read"] += repeated
    summary["superseded"] += repeated
    numbers = {(r.topic, r.partition, r.offset): r.number for r in reversed(records)}
    found = Quarantine(spark, lakehouse.quarantine, case.name).rows()
    kept = found.select("topic", "partition", "offset", "code", "reason").collect() if summary["quarantined"] else []
    quarantine = [
        {"line": numbers.get((r.topic, r.partition, r.offset)), "code": r.code, "reason": r.reason} for r in kept
    ]
    summary["quarantine"] = sorted(quarantine, key=lambda q: q["line"] if q["line"] is not None else -1)
    return summary


def _tables(
    spark: SparkSession,
    case: Case,
    lakehouse: Lakehouse,
    table_schemas: Sequence[TableSchema],
    declared: Sequence[str],
    form: Format,
) -> dict[str, dict[str, Any]]:
    """Returns table → its path relative to the case's folder, and its number of rows. A table without any commit is
    left out, unless it is `declared`."""
    tables: dict[str, dict[str, Any]] = {}
    for table_schema in table_schemas:
        path = lakehouse.silver(case.name, table_schema.table)
        silver = Silver(spark, path)
        if not silver.exists():
            continue  # It was set aside in its first batch.
        rows = silver.rows()
        file = Path(path).relative_to(case.out.resolve())
        if form == "jsonl":
            file = Path("tables") / f"{path_segment(table_schema.table)}.jsonl"
            columns = {c.name: rendered(quoted(c.name), c.type) for c in table_schema.columns}
            count = _write_lines(rows.select(json_object(columns)), case.out / file)
        else:
            count = rows.count()
        tables[table_schema.table] = {"file": str(file), "rows": count}
    if form == "jsonl":
        for table in declared:
            if table not in tables:
                file = Path("tables") / f"{path_segment(table)}.jsonl"
                (case.out / file).parent.mkdir(parents=True, exist_ok=True)
                (case.out / file).write_text("")
                tables[table] = {"file": str(file), "rows": 0}
    return tables


def _write_lines(text: DataFrame, path: Path) -> int:
    """Writes the lines and returns their number. Streams row by row, so that a table needn't fit into the driver's
    memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in text.toLocalIterator():
            file.write(row[0] + "\n")
            count += 1
    return count
