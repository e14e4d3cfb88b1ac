"""A pipeline's shredded columns: encrypted during capture; their keys are destroyed by an erasure."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.origin import ORIGIN, TableNaming
from ingest.config import Pipeline
from ingest.lakehouse.catalog import Catalog
from ingest.lakehouse.silver import Silver
from ingest.shredding.data_keys import DataKeys, read_master_keys
from ingest.shredding.opening import decrypt_columns
from ingest.shredding.owners import shredded_of
from ingest.shredding.sealing import Sealing
from ingest.suppression.key_file import read_keys
from ingest.suppression.ledger import REQUESTED, Ledger


def data_keys_of(pipeline: Pipeline) -> DataKeys | None:
    """Returns the pipeline's data keys; None if no column is shredded. Raises ConfigError for an invalid key file."""
    privacy = pipeline.privacy
    if privacy is None or privacy.shredding is None or not pipeline.shreds:
        return None
    settings = privacy.shredding
    return DataKeys(
        settings.key_store, pipeline.name, read_master_keys(settings.master_key_file), read_keys(privacy.key_file)
    )


def sealing_of(pipeline: Pipeline) -> Callable[[DataFrame], DataFrame]:
    """Returns the function that encrypts the shredded columns of events before they are stored. Raises ConfigError and
    Unreachable if the key store is missing or belongs to another pipeline."""
    keys = data_keys_of(pipeline)
    if keys is None:
        return lambda events: events
    keys.open_store().close()
    seal = Sealing(shredded_of(pipeline.tables), keys, pipeline.source.debezium.unavailable_value_placeholder)
    names = TableNaming(pipeline.source.table_names, frozenset(pipeline.source.topic_tables))
    return seal if names.is_unqualified else partial(_sealed, seal, names)


def _sealed(seal: Sealing, names: TableNaming, events: DataFrame) -> DataFrame:
    """Encrypts by the table names that the pipeline's file gives; bronze stores the plain ones."""
    table, origin = F.col("source_table"), F.col(ORIGIN)
    named = seal(events.withColumn("source_table", names.qualified(table, origin)))
    return named.withColumn("source_table", names.unqualified(table, origin))


def shred(spark: SparkSession, pipeline: Pipeline) -> int | None:
    """Destroys the data keys of all erasure requests, once for each. Returns the number of destroyed keys; None if no
    column is shredded."""
    keys = data_keys_of(pipeline)
    if keys is None:
        return None
    ledger, count = Ledger(spark, pipeline.layout.ledger, pipeline.name), 0
    owners = {owner.table for owner in shredded_of(pipeline.tables).owners.values()}
    with closing(keys.open_store()) as store:
        waiting = [e for e in ledger.entries() if e.kind == REQUESTED and not store.has_destroyed(e.request)]
        for entry in waiting:
            key_hashes = ledger.keys(entry.number).where(F.col("table").isin(*owners)).select("key_hash").distinct()
            count += store.destroy(entry.request, (row["key_hash"] for row in key_hashes.toLocalIterator()))
    return count


def decrypted_rows(spark: SparkSession, pipeline: Pipeline, table: str) -> DataFrame:
    """Returns a silver table with decrypted columns. Needs the master key. Values of erased subjects can't be
    decrypted."""
    entry = next(
        e for e in Catalog(spark, pipeline.layout.tables).entries(pipeline.name) if e.table_schema.table == table
    )
    rows = Silver(spark, pipeline.layout.silver(pipeline.name, table)).rows().select(*entry.table_schema.names)
    keys, sealed = data_keys_of(pipeline), shredded_of(pipeline.tables).columns.get(table, frozenset())
    return rows if keys is None else decrypt_columns(rows, entry.table_schema, sealed, keys)
