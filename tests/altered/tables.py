"""Random tables under all changes of their definitions, one for each seed, and a lakehouse into which many of them are
merged at a time, window by window."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count
from pathlib import Path
from random import Random
from threading import Event as Stop

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.backfill.rebuilding import Rebuild
from ingest.backfill.refolding import Refolding
from ingest.batches.rules import Rules
from ingest.changelog.change import quoted
from ingest.changelog.position import highest_position_at
from ingest.changelog.resync_record import resync_record
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.catalog import Catalog, CatalogEntry
from ingest.lakehouse.quarantine import Quarantine
from ingest.lakehouse.silver import Silver
from ingest.loop.capture import Capture
from ingest.loop.merge import Merge
from ingest.names import Lakehouse
from ingest.quality.accounting import audit
from ingest.sources.files import FileSource, Line, lines
from ingest.testing import Event, without_ddl
from ingest.testing.oracle import Row
from ingest.testing.source_table import key_of
from ingest.testing.table_deliveries import Record, cut, delivered, interleaved
from ingest.testing.table_records import as_debezium
from ingest.testing.tables import Statement, TableStory, interpret, random_table
from ingest.values.render import json_object, rendered
from tests.changelogs import write
from tests.deaths import Died
from tests.property.test_changing_tables import is_told
from tests.shop import pipeline

PIPELINE = "altered"
RECORD_BY_RECORD = 0


@dataclass(frozen=True)
class Sent:
    """A table and its records, in the windows in which they are delivered."""

    story: TableStory
    windows: Sequence[Sequence[Record]]


def keyed_table(
    seed: int, random: Random, is_wanted: Callable[[TableStory], bool] = lambda story: True, shortest: int = 10
) -> TableStory:
    """Returns a table that has a key all the time and changes at least twice. An insert follows the last change, so
    that events show it. The images of a table whose key changes are whole: partial ones of an older key are refused.

    `shortest`: the number of its statements, or else about twice as many."""
    while True:
        story = random_table(random, random.choice((shortest, 2 * shortest)), name=f"public.t{seed}", keyless=False)
        statements = [*story.statements, Statement("insert", random.getrandbits(32))]
        is_full = story.full or len({event.carried.key for event in story.events if event.carried}) > 1
        story = interpret(story.start, statements, story.name, story.mode, is_full, story.unlogged)
        if sum(event.ddl is not None for event in story.events) > 2 and not story.has_bags and is_wanted(story):
            return story


def told(seed: int, most_windows: int = 1, late_changes: bool = False, shortest: int = 10) -> Sent:
    """Returns a table whose messages tell all of its fills. `late_changes`: the messages may come at any time."""
    random = Random(seed)
    story = keyed_table(seed, random, is_told, shortest)
    records = _numbered(story, delivered(story, random, late_changes))
    return Sent(story, _in_windows(records, random, most_windows))


def shown(seed: int, most_windows: int = 1) -> Sent:
    """Returns a table without messages, which is read again in the last window."""
    random = Random(seed)
    story = keyed_table(seed, random)
    records = _numbered(story, without_ddl(delivered(story, random)))
    windows = _in_windows(records, random, most_windows)
    return Sent(story, [*windows, *[[]] * (most_windows - len(windows)), _resync(story, len(records))])


def _numbered(story: TableStory, events: Sequence[Event]) -> list[Record]:
    return interleaved([as_debezium(story, events, server=_server(story))], Random(0))


def _server(story: TableStory) -> str:
    """Returns the server of a table, which is its own: relations of different databases may have one oid."""
    return f"srv-{story.name.removeprefix('public.')}"


def _in_windows(records: list[Record], random: Random, most: int) -> list[list[Record]]:
    if most == RECORD_BY_RECORD:
        return [[record] for record in records]
    windows = cut(records, random)
    return [*windows[: most - 1], [record for window in windows[most - 1 :] for record in window]]


def _resync(story: TableStory, offset: int) -> list[Record]:
    """Returns the reads of all rows, from an offset on, and the record of their resync."""
    last, key = max(event.lsn for event in story.events), story.table.key or ()
    reads = [Event("r", 0, last + 10, key_of(row, key), dict(row), carried=story.table) for row in story.rows]
    records = as_debezium(story, reads, server=_server(story))
    floor, newest = highest_position_at((0, last, 0, 0)), highest_position_at((0, last + 10, 0, 0))
    named = ("public", story.name.removeprefix("public."))
    value = resync_record(named, f"{_server(story)}/shop", floor, newest, last + 10, "signal")
    end = {"topic": f"{_server(story)}-resync", "partition": 0, "offset": 0, "key": None, "value": value}
    return [*(record | {"offset": offset + n} for n, record in enumerate(records)), end]


class MergedTables:
    """A lakehouse into which records are merged. `begin` is called before each run, which may die."""

    def __init__(self, spark: SparkSession, folder: Path, begin: Callable[[], None] = lambda: None) -> None:
        self._spark, self._folder, self._begin = spark, folder, begin
        self._layout, self._rules = Lakehouse(str(folder / "lakehouse")), Rules()
        self._captured: list[Line] = []
        self._files = count()
        self._start()

    def _start(self) -> None:
        self._bronze = Bronze(self._spark, self._layout.bronze(PIPELINE))
        self.merging = Merge(self._spark, PIPELINE, self._layout, self._rules, self._bronze)

    def merge(self, records: list[Record]) -> None:
        """Merges records in one batch, by as many runs as it takes."""
        file = write(self._folder / f"in-{next(self._files)}", records, None) / "events.jsonl"
        self._captured += lines([file])
        while True:
            self._begin()
            try:
                self._merge_captured()
            except Died:
                self.close()
                self._start()
            else:
                return

    def _merge_captured(self) -> None:
        source = FileSource(self._captured)
        capture = Capture(self._spark, source, self._bronze, self._rules.naming, len(self._captured))
        capture.step()
        while self.merging.step(capture.captured.batch):
            pass

    def close(self) -> None:
        self.merging.close()

    def fold_anew(self, others: Collection[str] = ()) -> list[str]:
        """Folds the tables again of which stored rows don't tell all any more, as a run does. Returns their names.
        `others`: tables that are rebuilt first."""
        shop = pipeline(self._folder, name=PIPELINE)
        if others:
            Rebuild(self._spark, shop, sorted(others)).run()
            self.merging.refresh_tables()
        return [*others, *Refolding(self._spark, shop, Stop()).run(self.merging)]

    def problems(self) -> list[str]:
        """Returns what is wrong with the accounts."""
        rows = Accounts(self._spark, self._layout.accounts, PIPELINE).rows()
        found = audit(self._bronze.rows(), rows)
        unread = [f"{len(self._captured)} are captured, {found.merged} merged"]
        return [*found.problems, *(unread if found.merged != len(self._captured) else [])]

    def entry(self, story: TableStory) -> CatalogEntry | None:
        return self.merging.tables.table_schemas.revisions.get(story.name)

    def faults(self) -> dict[str, str]:
        """Returns the tables that are set aside or have events in quarantine, with a reason."""
        return self.quarantined() | self.set_aside()

    def set_aside(self) -> dict[str, str]:
        """Returns the tables that are set aside, with a reason."""
        return {table: f"{one.code}: {one.reason}" for table, one in self.merging.set_aside.items()}

    def quarantined(self) -> dict[str, str]:
        """Returns the tables that have events in quarantine, with a reason."""
        quarantine = Quarantine(self._spark, self._layout.quarantine, PIPELINE)
        rows = quarantine.rows().select("table", "code", "reason").collect()
        return {row["table"]: f"{row['code']}: {row['reason']}" for row in rows}

    def rows(self, stories: Sequence[TableStory]) -> dict[str, list[Row]]:
        """Returns `rows_of` the tables."""
        return rows_of(self._spark, self._layout, PIPELINE, stories)


def rows_of(
    spark: SparkSession, layout: Lakehouse, pipeline: str, stories: Sequence[TableStory]
) -> dict[str, list[Row]]:
    """Returns the rows of each table of a pipeline, as `ingest replay` writes them; none of one that is not there."""
    entries = {entry.table_schema.table: entry for entry in Catalog(spark, layout.tables).entries(pipeline)}
    tables = [(name, Silver(spark, layout.silver(pipeline, name))) for name in (story.name for story in stories)]
    frames = []
    for name, silver in tables:
        # One that was set aside while it was brought to another revision has other columns than its entry.
        if name in entries and silver.exists() and silver.has(entries[name].table_schema):
            columns = entries[name].table_schema.columns
            texts = json_object({column.name: rendered(quoted(column.name), column.type) for column in columns})
            frames.append(silver.rows().select(F.lit(name).alias("table"), texts.alias("text")))
    found: dict[str, list[Row]] = {story.name: [] for story in stories}
    for row in reduce(DataFrame.unionAll, frames).collect() if frames else []:
        found[row["table"]].append(json.loads(row["text"]))
    return found


def merged(
    spark: SparkSession, folder: Path, sent: Sequence[Sent], begin: Callable[[], None] = lambda: None
) -> Iterator[MergedTables]:
    """Merges the tables; the n-th windows of all of them are one batch. Yields the lakehouse after each batch. `begin`:
    as of `MergedTables`."""
    tables = MergedTables(spark, folder, begin)
    try:
        for number in range(max(len(one.windows) for one in sent)):
            tables.merge([record for one in sent for window in one.windows[number : number + 1] for record in window])
            yield tables
    finally:
        tables.close()
