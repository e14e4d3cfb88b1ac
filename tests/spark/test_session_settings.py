"""The precedence of Spark settings from several sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.errors import ConfigError
from ingest.spark.settings import (
    EVERYWHERE,
    REQUIRED,
    from_defaults_file,
    from_submit_arguments,
    local_cores,
    on_one_machine,
    resolved,
)

PARTITIONS = "spark.sql.shuffle.partitions"
DELTA = "io.delta.sql.DeltaSparkSessionExtension"


@pytest.mark.parametrize(
    ("defaults", "file", "submitted", "stands"),
    [
        ({}, {}, {}, "2"),
        ({PARTITIONS: "3"}, {}, {}, "3"),
        ({PARTITIONS: "3"}, {PARTITIONS: "4"}, {}, "4"),
        ({PARTITIONS: "3"}, {PARTITIONS: "4"}, {PARTITIONS: "5"}, "5"),
        ({}, {}, {PARTITIONS: "5"}, "5"),
    ],
)
def test_precedence_of_settings(
    defaults: dict[str, str], file: dict[str, str], submitted: dict[str, str], stands: str
) -> None:
    set_on_top = resolved(on_one_machine(2), file, submitted, defaults)
    assert {**defaults, **submitted, **set_on_top}[PARTITIONS] == stands
    assert PARTITIONS not in submitted or PARTITIONS not in set_on_top, "what is submitted isn't touched"


def test_cluster_keeps_its_own_shuffle_settings() -> None:
    assert PARTITIONS not in resolved(EVERYWHERE, {}, {})
    for name in ("spark.databricks.delta.snapshotPartitions", "spark.sql.adaptive.enabled", "spark.ui.enabled"):
        assert name not in resolved(EVERYWHERE, {}, {})
        assert name in on_one_machine(4)
    assert on_one_machine(4)[PARTITIONS] == "4"


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_settings_on_which_results_depend_are_refused(name: str) -> None:
    for file, submitted in (({name: "other"}, {}), ({}, {name: "other"})):
        with pytest.raises(ConfigError, match=name):
            resolved(EVERYWHERE, file, submitted)
    same = {name: REQUIRED[name]}
    assert resolved(EVERYWHERE, same, {})[name] == REQUIRED[name]
    # A cluster's own defaults are not meant for this job.
    assert resolved(EVERYWHERE, {}, {}, {name: "other"})[name] == REQUIRED[name]


def test_delta_extension_is_added_to_others() -> None:
    for file, submitted in (({"spark.sql.extensions": "a.B"}, {}), ({}, {"spark.sql.extensions": "a.B"})):
        assert resolved(EVERYWHERE, file, submitted)["spark.sql.extensions"] == f"a.B,{DELTA}"
    assert resolved(EVERYWHERE, {}, {"spark.sql.extensions": DELTA})["spark.sql.extensions"] == DELTA


def test_overridden_setting_is_logged_without_its_value(caplog: pytest.LogCaptureFixture) -> None:
    resolved({}, {"spark.x.password": "one"}, {"spark.x.password": "two"})
    assert "spark.x.password" in caplog.text
    assert "one" not in caplog.text.replace("another one", "")
    assert "two" not in caplog.text


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[2, 4]", 2), ("local-cluster[1,1,1024]", None), ("spark://host:7077", None)],
)
def test_local_cores_of_a_master(master: str, cores: int | None) -> None:
    assert local_cores(master) == cores


def test_local_star_uses_all_cores() -> None:
    assert (local_cores("local[*]") or 0) >= 1


def test_settings_are_read_from_files_and_arguments(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# no setting\nspark.a  1\nspark.b=2 3\n\n  spark.c : x=y \n")
    assert from_defaults_file({"SPARK_CONF_DIR": str(tmp_path)}) == {"spark.a": "1", "spark.b": "2 3", "spark.c": "x=y"}
    assert from_defaults_file({"SPARK_HOME": str(tmp_path)}) == {}
    assert from_submit_arguments("--master x --conf 'spark.a=1 2' -c spark.b=c=d pyspark-shell") == {
        "spark.a": "1 2",
        "spark.b": "c=d",
    }
