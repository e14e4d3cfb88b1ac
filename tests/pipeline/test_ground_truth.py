"""Silver equals the database after any changes of its tables, row by row and type by type, through the real
connector."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from ingest.batches.rules import DEFAULT_PLACEHOLDER
from ingest.config import load
from ingest.errors import SourceRefused
from ingest.lakehouse.accounts import Accounts
from ingest.lakehouse.bronze import Bronze
from ingest.lakehouse.silver import Silver
from ingest.merge.key_changes import names_new_key
from ingest.names import Lakehouse
from ingest.pipeline.composition import Run
from ingest.pipeline.status import status
from ingest.quality import compare_with_postgres
from ingest.quality.accounting import audit
from ingest.sources.kafka_admin import KafkaAdmin
from ingest.stack import Stack

pytestmark = [pytest.mark.integration, pytest.mark.long]
SEED = int(os.environ.get("FUZZ_SEED", "10"))
TURNS = 400
TYPED = """(
    id bigint PRIMARY KEY, i2 smallint, i4 int, f4 real, f8 double precision, n numeric(12,2), free numeric,
    t text, vc varchar(20), ch char(5), b bool, d date, tm time, ts timestamp, tz timestamptz, u uuid,
    j json, jb jsonb, mood truth.mood, ints int[], words text[], big text, blob bytea
)"""
DDL = f"""
    CREATE SCHEMA truth;
    CREATE TYPE truth.mood AS ENUM ('sad', 'ok', 'happy');
    CREATE TABLE truth.typed {TYPED};
    CREATE TABLE truth.whole {TYPED};
    ALTER TABLE truth.whole REPLICA IDENTITY FULL;
    CREATE TABLE truth."Odd ""Name" ("a b" text NOT NULL, n int NOT NULL, "v.w" text, big text, PRIMARY KEY ("a b", n));
    CREATE UNIQUE INDEX odd ON truth."Odd ""Name" (n, "a b");
    ALTER TABLE truth."Odd ""Name" REPLICA IDENTITY USING INDEX odd;
    CREATE TABLE truth.bag (n int, v text);
    ALTER TABLE truth.bag REPLICA IDENTITY FULL;
    CREATE TABLE truth.noted (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, v text);
    ALTER TABLE truth.noted REPLICA IDENTITY NOTHING;
    ALTER TABLE truth.typed ALTER big SET STORAGE EXTERNAL, ALTER blob SET STORAGE EXTERNAL,
        ALTER words SET STORAGE EXTERNAL, ALTER jb SET STORAGE EXTERNAL;
    ALTER TABLE truth."Odd ""Name" ALTER big SET STORAGE EXTERNAL;
"""
COLUMNS = [c.strip().split()[0] for c in TYPED.strip("() \n").replace("(12,2)", "").split(",")][1:]


class Workload:
    """Two sessions with interleaving transactions, each with its own rows (by the remainder of a number)."""

    def __init__(self, dsn: str) -> None:
        self.random = Random(SEED)
        self.sessions = [psycopg.connect(dsn), psycopg.connect(dsn)]

    def run(self, turns: int) -> None:
        for _ in range(turns):
            who = self.random.randrange(2)
            step = self.random.choice([self.insert, self.insert, self.update, self.update, self.move, self.delete,
                                       self.copy, self.odd, self.bag, self.bag, self.note])  # fmt: skip
            step(self.sessions[who], who)
            chance = self.random.random()
            if chance < 0.3:
                self.sessions[who].commit()
            elif chance < 0.36:
                self.sessions[who].rollback()
            elif chance < 0.39:
                self.truncate()
        self.close()

    def close(self) -> None:
        for session in self.sessions:
            session.commit()
            session.close()

    def values(self) -> dict[str, Any]:
        r = self.random
        made: dict[str, Any] = {
            "i2": r.randint(-32768, 32767),
            "i4": r.randint(-(2**31), 2**31 - 1),
            "f4": r.choice([0.5, -1.25, 3e9]),
            "f8": r.choice([0.1, -1e300, float("inf")]),
            "n": f"{r.randint(-(10**9), 10**9)}.{r.randint(10, 99)}",
            "free": r.choice(["1.5", "123456789012345678901234567890.123", "0"]),
            "t": r.choice(["", "é😀", "a\tb"]),
            "vc": r.choice(["x", "null"]),
            "ch": "ab",
            "b": r.random() < 0.5,
            "d": r.choice(["1969-12-31", "2024-02-29"]),
            "tm": r.choice(["00:00:00", "23:59:59.999999"]),
            "ts": r.choice(["1900-01-01 00:00:00.000001", "2038-01-19"]),
            "tz": r.choice(["2024-03-31 02:30:00+05", "1970-01-01Z"]),
            "u": f"{r.getrandbits(128):032x}",
            "j": json.dumps({"a": r.randint(0, 9)}),
            "jb": json.dumps({"k": [r.random(), None], "pad": "p" * r.choice([1, 3000])}),
            "mood": r.choice(["sad", "ok", "happy"]),
            "ints": [r.randint(0, 9), None],
            "words": [str(r.random())] * r.choice([1, 300]),
            "big": f"{r.random()}" + "x" * r.choice([1, 3000]),
            "blob": r.randbytes(8) * r.choice([1, 400]),
        }
        return {c: None if r.random() < 0.15 else v for c, v in made.items()}

    def key(self, who: int) -> int:
        return self.random.randrange(12) * 2 + who

    def table(self) -> sql.Identifier:
        return sql.Identifier("truth", self.random.choice(["typed", "whole"]))

    def insert(self, session: psycopg.Connection[Any], who: int) -> None:
        row = {"id": self.key(who), **self.values()}
        names = sql.SQL(", ").join(map(sql.Identifier, row))
        places = sql.SQL(", ").join(sql.Placeholder() * len(row))
        text = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT DO NOTHING").format(self.table(), names, places)
        session.execute(text, list(row.values()))

    def update(self, session: psycopg.Connection[Any], who: int) -> None:
        """Updates a few columns; unchanged TOASTed values do not reach the log."""
        chosen = self.random.sample(COLUMNS, self.random.randint(1, 3))
        values = self.values()
        sets = sql.SQL(", ").join(sql.SQL("{} = {}").format(sql.Identifier(c), sql.Placeholder()) for c in chosen)
        text = sql.SQL("UPDATE {} SET {} WHERE id %% 2 = {} AND id < {}").format(
            self.table(), sets, sql.Literal(who), sql.Literal(self.key(who))
        )
        session.execute(text, [values[c] for c in chosen])

    def move(self, session: psycopg.Connection[Any], who: int) -> None:
        text = sql.SQL(
            "UPDATE {0} SET id = {1}, t = 'moved' WHERE id = {2} AND NOT EXISTS (SELECT FROM {0} WHERE id = {1})"
        )
        new, old = sql.Literal(self.key(who)), sql.Literal(self.key(who))
        session.execute(text.format(self.table(), new, old))

    def delete(self, session: psycopg.Connection[Any], who: int) -> None:
        session.execute(sql.SQL("DELETE FROM {} WHERE id = {}").format(self.table(), sql.Literal(self.key(who))))

    def copy(self, session: psycopg.Connection[Any], who: int) -> None:
        """Copies rows, which share one position of the log."""
        table = self.table()
        session.execute(sql.SQL("DELETE FROM {} WHERE id % 2 = {} AND id >= 24").format(table, sql.Literal(who)))
        with session.cursor().copy(sql.SQL("COPY {} (id, t, big) FROM STDIN").format(table)) as copy:
            for n in range(self.random.randint(2, 5)):
                copy.write_row((24 + 2 * n + who, f"copied {self.random.random()}", None))

    def odd(self, session: psycopg.Connection[Any], who: int) -> None:
        table, key = sql.Identifier("truth", 'Odd "Name'), ("k." * self.random.randint(1, 3), self.key(who))
        big = f"{self.random.random()}" + "y" * 3000
        session.execute(
            sql.SQL("INSERT INTO {} VALUES (%s, %s, 'new', %s) ON CONFLICT DO NOTHING").format(table), (*key, big)
        )
        chosen = self.random.choice([
            'UPDATE {} SET "v.w" = \'changed\' WHERE n %% 2 = %s AND n > %s',
            "DELETE FROM {} WHERE n %% 2 = %s AND n = %s",
            'UPDATE {} SET "a b" = "a b" || \'~\', "v.w" = \'moved\' WHERE n %% 2 = %s AND n = %s',
        ])  # fmt: skip
        session.execute(sql.SQL(chosen).format(table), (who, self.key(who)))

    def bag(self, session: psycopg.Connection[Any], who: int) -> None:
        row = (self.random.randrange(3) * 2 + who, self.random.choice(["a", "b", None]))
        session.execute(
            "INSERT INTO truth.bag SELECT %s, %s FROM generate_series(1, %s)", (*row, self.random.randint(1, 3))
        )
        one = "WHERE ctid IN (SELECT ctid FROM truth.bag WHERE n = %s LIMIT 1)"
        chosen = self.random.choice([f"DELETE FROM truth.bag {one}", f"UPDATE truth.bag SET v = 'changed' {one}"])
        session.execute(chosen, (self.random.randrange(3) * 2 + who,))

    def note(self, session: psycopg.Connection[Any], who: int) -> None:
        """Inserts a row: without a replica identity Postgres allows no updates or deletes."""
        session.execute("INSERT INTO truth.noted (v) VALUES (%s)", (f"{who}: {self.random.random()}",))

    def truncate(self) -> None:
        """Truncates. Needs locks on whole tables, so no session may hold a row lock."""
        for session in self.sessions:
            session.commit()
        which = self.random.choice(["truth.typed", "truth.typed, truth.whole", "truth.bag"])
        self.sessions[0].execute("TRUNCATE " + which)
        self.sessions[0].commit()


@pytest.fixture
def pipeline(stack: Stack, tmp_path: Path) -> Iterator[Path]:
    """Returns the pipeline file; the tables exist, hold rows for the snapshot, and have a connector."""
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        connection.execute(DDL)
    Workload(stack.postgres.dsn).run(20)
    stack.connect.register("truth", connector(stack, "truth"))
    file = tmp_path / "truth.yaml"
    file.write_text(
        f"source:\n  kafka: {{bootstrap.servers: '{stack.kafka.bootstrap_servers}'}}\n"
        f"  topic_pattern: truth\\.truth\\..*\nlakehouse: {tmp_path}/lakehouse\nbatch: {{max_events: 250}}\n",
        encoding="utf-8",
    )
    yield file
    for name in ("truth", "truth_again"):
        stack.connect.delete(name)


def connector(stack: Stack, slot: str) -> dict[str, str]:
    properties = {"schema.include.list": "truth", "skipped.operations": "none", "slot.name": slot}
    return stack.postgres.connector("truth") | properties


def lose_the_slot(stack: Stack) -> None:
    """Changes and deletes rows while no connector runs; then a new connector takes a snapshot into the same topics."""
    stack.connect.delete("truth")
    with psycopg.connect(stack.postgres.dsn, autocommit=True) as connection:
        for attempt in Retrying(stop=stop_after_delay(120), wait=wait_fixed(0.5), reraise=True):
            with attempt:
                connection.execute("SELECT pg_drop_replication_slot('truth')")
        for table in ("typed", "whole"):
            connection.execute(f"INSERT INTO truth.{table} (id, t) VALUES (100, 'new'), (101, 'gone')")
            connection.execute(f"DELETE FROM truth.{table} WHERE id % 3 = 0 OR id = 101")
            connection.execute(f"UPDATE truth.{table} SET t = 'unheard' WHERE id % 3 = 1")
        connection.execute('DELETE FROM truth."Odd ""Name" WHERE n % 4 = 1')
        connection.execute("INSERT INTO truth.bag VALUES (7, 'unheard'), (7, 'unheard')")
    stack.connect.register("truth_again", connector(stack, "truth_again"))


def bag_of(rows: list[Any]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in rows)


def test_silver_equals_the_database(pipeline: Path, stack: Stack, spark: SparkSession) -> None:
    loaded = load(str(pipeline))
    layout = Lakehouse(loaded.lakehouse)
    writing = threading.Thread(target=Workload(stack.postgres.dsn).run, args=(TURNS,))
    writing.start()
    source = loaded.source
    seen = Retrying(
        retry=retry_if_exception_type(SourceRefused), stop=stop_after_delay(300), wait=wait_fixed(0.5), reraise=True
    )
    seen(KafkaAdmin(source.kafka).topics, None, source.topic_pattern)
    run = Run(spark, loaded)
    assert differences_after(run, spark, layout, stack.postgres.dsn, writing) == [], f"seed {SEED}"
    lose_the_slot(stack)
    assert differences_after(run, spark, layout, stack.postgres.dsn, writing) == [], f"seed {SEED}, after a snapshot"
    bronze, accounts = Bronze(spark, layout.bronze("truth")).rows(), Accounts(spark, layout.accounts, "truth").rows()
    assert audit(bronze, accounts).problems == []
    text = F.col("value").cast("string")
    counts = bronze.agg(
        F.collect_set("op"), F.count_if(text.contains(DEFAULT_PLACEHOLDER)), F.count_if(names_new_key())
    ).first()
    assert counts is not None
    ops, unavailable, key_changes = counts
    print(
        f"{bronze.count()} events, {unavailable} with unavailable values, {key_changes} key changes (FUZZ_SEED={SEED})"
    )
    assert set(ops) >= {"c", "u", "d", "r", "t", "tombstone"}
    assert unavailable > 20
    assert key_changes > 5
    found = status(spark, "truth", layout)
    assert found.quarantined == {}
    assert {t.table: t.pending for t in found.tables if t.pending} == {}


def differences_after(
    run: Run, spark: SparkSession, layout: Lakehouse, dsn: str, writing: threading.Thread
) -> list[str]:
    """Returns the differences of silver and its source after the last change; waits for Debezium."""
    differing = ["nothing was compared in time"]
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        if not run.step().idle or writing.is_alive():
            continue
        differing = list(_differences(spark, layout, dsn))
        if not differing:
            break
        time.sleep(2)
    return differing


def _differences(spark: SparkSession, layout: Lakehouse, dsn: str) -> Iterator[str]:
    for table in ("truth.typed", "truth.whole", 'truth.Odd "Name', "truth.noted"):
        silver = Silver(spark, layout.silver("truth", table))
        if not silver.exists():
            yield f"{table} is not there yet"
        elif not (compared := compare_with_postgres(spark, dsn, table, silver.rows())).equal:
            yield str(compared)
    with psycopg.connect(dsn) as connection:
        expected = bag_of(connection.execute("SELECT n, v FROM truth.bag").fetchall())
    silver = Silver(spark, layout.silver("truth", "truth.bag"))
    found = bag_of(silver.rows().select("n", "v").collect()) if silver.exists() else Counter()
    if found != expected:
        yield f"truth.bag: {(expected - found).total()} rows are missing, {(found - expected).total()} are too many"
