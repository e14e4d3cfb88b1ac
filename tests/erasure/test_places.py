"""The register of places: every folder that holds rows is in one entry, and the scan, which reads the pipeline's file
by itself, covers every entry."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from ingest.backfill.source_readers import SourceReader
from ingest.config import Pipeline
from ingest.erasure.places import (
    ARCHIVE,
    BRONZE,
    DATA_KEYS,
    OLD_FILES,
    QUARANTINE,
    TABLES,
    TOMBSTONES,
    TOPICS,
    register,
)
from ingest.erasure.places.place import ErasurePlace, Removed
from ingest.erasure.places.register import REGISTER, delta_folders, delta_places, used_places
from ingest.names import Lakehouse
from ingest.proof.search import places_of
from ingest.upkeep.old_files import tables_without_rows
from tests.erasure.people import MEMBERS, insured

DELTA = [TOMBSTONES, QUARANTINE, TABLES, BRONZE]
NO_SPARK = cast(SparkSession, None)
ARGUMENTS = {"source": "insured", "table": MEMBERS, "number": 1}
"""By name of the parameter of a path in the layout."""


class WiderLayout(Lakehouse):
    """With a folder of rows that is in no entry."""

    def notes(self, source: str, table: str) -> str:
        return self._below("notes", source, table)


@pytest.fixture(autouse=True)
def backfilled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every pipeline one that has read its stream and a backfill."""

    def readers(_: SparkSession, pipeline: Pipeline) -> list[SourceReader]:
        paths = pipeline.layout.bronze(pipeline.name), pipeline.layout.backfilled(pipeline.name, 1)
        return [SourceReader(f"reader {path}", path, {}) for path in paths]

    monkeypatch.setattr("ingest.erasure.places.bronze.source_readers", readers)


def names(places: Iterable[ErasurePlace]) -> list[str]:
    return [place.name for place in places]


def paths_of(layout: Lakehouse) -> dict[str, str]:
    """Returns the name of each folder of the layout, with its path for one table."""
    paths = {}
    for name in dir(type(layout)):
        member = inspect.getattr_static(type(layout), name)
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            paths[name] = getattr(layout, name)
        elif inspect.isfunction(member) and member.__annotations__["return"] == "str":
            parameters = [p for p in inspect.signature(member).parameters if p != "self"]
            paths[name] = getattr(layout, name)(*(ARGUMENTS[p] for p in parameters))
    return paths


def without_entry(pipeline: Pipeline, layout: Lakehouse) -> set[str]:
    """Returns the names of the layout's folders that no entry has, and that aren't known to hold no rows."""
    known = {*delta_folders(NO_SPARK, pipeline, [MEMBERS]), *tables_without_rows(layout)}
    return {name for name, path in paths_of(layout).items() if path not in known}


def unscanned(pipeline: Pipeline) -> list[str]:
    """Returns where rows may be, according to the register, that the scan neither reads nor says that it doesn't."""
    places, left_out = places_of(pipeline)
    scanned = [_plain(name) for name in (*(p.name for p in places), *(p.place for p in left_out))]
    outside = [uri for place in used_places(pipeline) if place.outside for uri in place.outside(pipeline)]
    locations = [*delta_folders(NO_SPARK, pipeline, [MEMBERS]), *outside]
    return [at for at in locations if not any(f"{_plain(at)}/".startswith(f"{name}/") for name in scanned)]


def _plain(location: str) -> str:
    return location.replace("s3a://", "s3://").removeprefix("file://").rstrip("/")


def remove_nothing(_: object) -> Removed:
    return Removed({})


def made_up(**parts: Any) -> ErasurePlace:
    given = {"find": None, "remove": remove_nothing, "folders": None, "outside": None}
    return ErasurePlace("notes", **given | parts)


def test_places_follow_the_pipeline_file(tmp_path: Path) -> None:
    assert names(used_places(insured(tmp_path))) == [*DELTA, OLD_FILES]
    archived = insured(tmp_path, archive={"uri": f"s3://bucket/{tmp_path.name}"})
    assert names(used_places(archived)) == [*DELTA, OLD_FILES, ARCHIVE]
    privacy = {"key_file": str(tmp_path / "ledger.key"), "tombstones_in_topics": True}
    assert names(used_places(insured(tmp_path, privacy=privacy))) == [*DELTA, OLD_FILES, TOPICS]


def test_order_of_removal() -> None:
    assert names(REGISTER) == [DATA_KEYS, *DELTA, OLD_FILES, TOPICS, ARCHIVE]
    assert delta_places() == {*DELTA}, "old files are deleted after all of these"
    assert DELTA[-1] == BRONZE, "its events are needed to find the rest"


def test_entry_requires_all_parts() -> None:
    with pytest.raises(TypeError, match="folders"):
        ErasurePlace("notes", find=None, remove=remove_nothing, outside=None)  # type: ignore[call-arg]
    assert [p.name for p in REGISTER if p.folders and not p.find] == [], "rows in Delta tables are searched"
    without_rows = [p.name for p in REGISTER if not p.folders and not p.outside]
    assert without_rows == [DATA_KEYS, OLD_FILES], "all others say where their rows are"


def test_each_folder_with_rows_is_in_one_entry(tmp_path: Path) -> None:
    pipeline = insured(tmp_path)
    assert without_entry(pipeline, pipeline.layout) == set()
    assert without_entry(pipeline, WiderLayout(pipeline.layout.root)) == {"notes"}
    folders = [*delta_folders(NO_SPARK, pipeline, [MEMBERS]), *tables_without_rows(pipeline.layout)]
    assert sorted(folders) == sorted({*folders})


@pytest.mark.parametrize("root", [None, "file://{}/lakehouse", "s3a://lake/house", "abfss://c@account/x"])
def test_scan_covers_every_entry(tmp_path: Path, root: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lakehouse that can't be read from here is at least named in the report."""
    more: dict[str, Any] = {} if root is None else {"lakehouse": root.format(tmp_path)}
    privacy = {"key_file": str(tmp_path / "ledger.key"), "tombstones_in_topics": True}
    pipeline = insured(tmp_path, archive={"uri": "s3://kept/changelogs"}, privacy=privacy, **more)
    assert names(used_places(pipeline))[-2:] == [TOPICS, ARCHIVE]
    assert unscanned(pipeline) == []
    elsewhere = ["postgresql://sink.example/notes"], [f"{tmp_path}/notes"]
    new = made_up(outside=lambda _: elsewhere[0], folders=lambda *_: elsewhere[1])
    monkeypatch.setattr(register, "REGISTER", (*REGISTER, new))
    assert unscanned(pipeline) == [*elsewhere[1], *elsewhere[0]]
