"""The scanner finds deleted values in all parts of real Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ingest.proof.forms.encodings import IN_COLUMN
from ingest.proof.scan.report import PlaceScan
from tests.proof.subject import EMAIL, NUMBER, in_file, scan, unread

pytestmark = [pytest.mark.spark, pytest.mark.long]
OTHERS = 300


@pytest.fixture(scope="module")
def lakehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    settings = {
        # As other writers: sessions of ingest omit the list of files from checksums.
        "spark.databricks.delta.writeChecksumFile.enabled": "true",
        "spark.databricks.delta.allFilesInCrc.enabled": "true",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # The number of parts of a vacuum's file listing.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    }
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    root = tmp_path_factory.mktemp("delta")
    for name, properties in TABLES.items():
        table(spark, root / name, properties)
    yield root
    for key, was in before.items():
        if was is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, was)


TABLES: dict[str, dict[str, str]] = {
    "vectors": {"delta.enableDeletionVectors": "true"},
    "rewritten": {},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "checkpoints": {"delta.checkpointInterval": "2"},
    "v2": {"delta.checkpointInterval": "2", "delta.checkpointPolicy": "v2"},
    "parsed": {"delta.checkpointInterval": "2", "delta.checkpoint.writeStatsAsStruct": "true"},
    "mapped": {"delta.columnMapping.mode": "name"},
}


def table(spark: SparkSession, path: Path, properties: dict[str, str]) -> None:
    """Writes two files: one with others only, and one with the subject, whose mail is its maximum. The subject is
    updated, then deleted."""
    said = ", ".join(f"'{k}' = '{v}'" for k, v in properties.items())
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, mail STRING, note STRING) USING delta"
        + (f" TBLPROPERTIES ({said})" if said else "")
    )
    others(spark, OTHERS).write.format("delta").mode("append").save(str(path))
    people = others(spark, 1).union(
        spark.createDataFrame([(NUMBER, EMAIL, "x")], "id BIGINT, mail STRING, note STRING")
    )
    people.coalesce(1).write.format("delta").mode("append").save(str(path))
    spark.sql(f"UPDATE delta.`{path}` SET note = 'y' WHERE id = {NUMBER}")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = {NUMBER}")
    assert spark.read.format("delta").load(str(path)).count() == OTHERS + 1


def others(spark: SparkSession, count: int) -> DataFrame:
    return (
        spark.range(count)
        .selectExpr("id", "concat(id, '@mail.example') AS mail", "cast(null AS STRING) AS note")
        .coalesce(1)
    )


@pytest.fixture(scope="module")
def scanned(lakehouse: Path) -> PlaceScan:
    return scan(lakehouse)


@pytest.mark.parametrize("name", TABLES)
def test_deleted_rows_are_found_in_data_files(name: str, scanned: PlaceScan) -> None:
    there = {(f.needle, f.part.split(",")[0], f.form) for f in scanned.findings.values() if is_data(name, f.file)}
    assert ("email", "row group 0", "as given") in there
    assert ("member", "row group 0", IN_COLUMN) in there


def is_data(name: str, file: str) -> bool:
    # Column mapping writes files into folders with names of two letters.
    table, *folders, file = file.split("/")
    return table == name and not folders[1:] and not "".join(folders).startswith("_") and file.startswith("part-")


@pytest.mark.parametrize("name", TABLES)
def test_statistics_and_predicates_are_found_in_commits(name: str, scanned: PlaceScan) -> None:
    there = in_file(scanned, f"{name}/_delta_log/0000000000000000000")
    assert ("email", "first 32 characters") in there
    assert ("member", IN_COLUMN) in there


def test_the_predicate_of_a_delete_is_found(scanned: PlaceScan) -> None:
    """The last commit of a table with deletion vectors holds a predicate and no statistics."""
    last = "vectors/_delta_log/00000000000000000004.json"
    assert ("member", IN_COLUMN) in in_file(scanned, last)


def test_checksums_of_the_log_are_read(scanned: PlaceScan) -> None:
    assert any(
        f.file.endswith(".crc") and f.file.startswith("rewritten/_delta_log/") for f in scanned.findings.values()
    )


def test_the_change_feed_is_read(scanned: PlaceScan) -> None:
    assert in_file(scanned, "feed/_change_data/") >= {("email", "as given"), ("member", IN_COLUMN)}


@pytest.mark.parametrize("name", ["checkpoints", "parsed", "v2"])
def test_checkpoints_are_read(name: str, scanned: PlaceScan, lakehouse: Path) -> None:
    where = "_sidecars" if name == "v2" else ""
    log = lakehouse / name / "_delta_log"
    files = list((log / where).glob("*.parquet" if where else "*.checkpoint*.parquet"))
    assert files
    hits = {f.needle for f in scanned.findings.values() if any(f.file.endswith(file.name) for file in files)}
    assert hits == {"email", "member"}


def test_deletion_vectors_are_decoded(scanned: PlaceScan) -> None:
    kinds = {k.kind: k.files for k in scanned.read()}
    assert kinds["deletion vector"] >= 1
    assert kinds["parquet"] >= 14


def test_every_file_of_a_table_is_read(scanned: PlaceScan) -> None:
    assert unread(scanned) == []


def test_log_of_a_vacuumed_table_still_holds_values(spark: SparkSession, lakehouse: Path) -> None:
    path = lakehouse / "vectors"
    spark.sql(f"REORG TABLE delta.`{path}` APPLY (PURGE)")
    spark.sql(f"VACUUM delta.`{path}` RETAIN 0 HOURS")
    left = {f.file for f in scan(path).findings.values()}
    assert left
    assert all(file.startswith("_delta_log/") for file in left), left


def test_table_without_the_subject_is_clean(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "clean"
    frame = others(spark, 20_000)
    frame.write.format("delta").save(str(path))
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 7")
    ours = scan(path)
    assert {f.part for f in ours.findings.values() if f.needle == "email"} == set()
    # The number belongs to another person here.
    assert {f.needle for f in ours.findings.values()} == {"member"}


def test_partition_value_in_a_folder_name_is_found(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "by_mail"
    frame = spark.createDataFrame([(NUMBER, EMAIL, 1), (2, "b@mail.example", 1)], "id BIGINT, mail STRING, n INT")
    frame.write.format("delta").partitionBy("id", "mail").save(str(path))
    there = {(f.needle, f.part) for f in scan(path).findings.values() if not f.file.startswith("_delta_log")}
    assert ("member", "its name") in there
    assert {("email", "its name"), ("email", "its name, decoded")} & there
    assert in_file(scan(path), "_delta_log/") >= {("email", "as given"), ("member", IN_COLUMN)}
    assert not any(EMAIL in f.file for f in scan(path).findings.values())


def test_state_of_a_stream_is_read_as_rows(spark: SparkSession, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    frame = spark.createDataFrame([(NUMBER, EMAIL)], "id BIGINT, mail STRING")
    frame.write.format("delta").save(str(source))
    stream = spark.readStream.format("delta").load(str(source)).dropDuplicates(["mail"])
    query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    there = scan(checkpoint)
    state = {(f.needle, f.part) for f in there.findings.values() if f.file.startswith("state/")}
    assert ("email", "lz4 blocks: its bytes") in state
    # Only texts of its rows are found: numbers have no column name there.
    assert "lz4 blocks: its format is not known: its bytes were searched as they are, not decoded" in {
        why for _, why in unread(there)
    }
    assert all(file.startswith("state/") for file, _ in unread(there)), unread(there)
