"""Fixtures that all tests share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ingest.changelog.accounting import COUNTS, OUTCOMES, Account
from ingest.loop.merge import Merge
from ingest.spark.session import SMALL, spark_session
from ingest.spark.settings import EVERYWHERE, on_one_machine
from ingest.stack import S3, Stack
from ingest.stack.registry import Registry


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups tests for pytest-xdist: all tests with services run in one process, so that the services start once; tests
    that need only S3 in another; every other module stays in one process for its fixtures."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))


def _group(item: pytest.Item) -> str:
    if item.get_closest_marker("integration") is None:
        return item.nodeid.split("::")[0]
    needed: Sequence[str] = getattr(item, "fixturenames", ())
    return "s3" if "s3" in needed and "stack" not in needed else "services"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session with Delta, for many plans over a handful of rows."""
    session = spark_session("ingest tests", SMALL)
    yield session
    session.stop()


@pytest.fixture
def production(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of the same process with the settings of `ingest run` on `local[2]`: generated code, two shuffle
    partitions, two tasks at once, checksums. Only what a running process can't change stays as in other tests: options
    of the JVM, the size of memory pages, and the store of Delta's logs."""
    session, run = spark.newSession(), EVERYWHERE | on_one_machine(2)
    for name in filter(session.conf.isModifiable, SMALL):
        if name in run:
            session.conf.set(name, run[name])
        else:
            session.conf.unset(name)
    # PySpark sets no properties of a running context. The scheduler reads this one at each call.
    context: Any = spark.sparkContext._jsc
    parallelism = "spark.default.parallelism"
    context.sc().conf().set(parallelism, "2")
    yield session
    context.sc().conf().set(parallelism, SMALL[parallelism])


@pytest.fixture
def whole_plans(spark: SparkSession) -> Iterator[None]:
    """Prints plans without truncation, for tests that a value does not occur in them."""
    name = "spark.sql.debug.maxToStringFields"
    short = spark.conf.get(name)
    spark.conf.set(name, "1000")
    yield
    spark.conf.set(name, short or "0")


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """Postgres, Kafka and Kafka Connect. Tests share them: choose table, topic, slot and connector names."""
    with Stack() as running:
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """An S3 server. Tests share it: choose names of buckets."""
    with Stack(tmp_path_factory.mktemp("s3") / "stack", parts=("s3",)) as running:
        yield running.s3


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A schema registry. Tests share it: choose names of topics."""
    with Stack(tmp_path_factory.mktemp("registry") / "stack", parts=("registry",)) as running:
        yield running.registry


@pytest.fixture(scope="session", autouse=True)
def accounts_balance() -> Iterator[None]:
    """Asserts for every merged slice of any test that each event has one outcome and no count is negative."""
    step = Merge.step

    def balanced(merge: Merge, captured: int | None = None, more: bool = False) -> Sequence[Account]:
        accounts = step(merge, captured, more)
        for account in accounts:
            assert account.read == sum(getattr(account, outcome) for outcome in OUTCOMES), account
            assert min(getattr(account, count) for count in COUNTS) >= 0, account
        return accounts

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Merge, "step", balanced)
        yield
