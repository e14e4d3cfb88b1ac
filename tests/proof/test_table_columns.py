"""Search terms name columns as `table.column`: unknown ones are refused, and values in other tables don't count."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from ingest.cli import app
from ingest.errors import ConfigError
from ingest.proof.canaries import check_canaries, column_canaries
from ingest.proof.forms import ValueType
from ingest.proof.scan import Folder, SearchTerm, scan_places
from ingest.proof.scan.report import PlaceScan, build_report
from ingest.proof.scan.search_terms import parse_search_terms
from ingest.proof.scan.table_columns import TableColumns, table_columns, table_of
from tests.proof.test_scan_cli import written

KNOWN = TableColumns(
    {
        "public.members": {"id": "long", "born": "date", "pay": "decimal(10,2)", "mail": "string"},
        "public.orders": {"id": "long", "member_id": "long"},
        "public.new": {},
    }
)


def resolved(value: Any, *columns: str) -> tuple[SearchTerm, ...]:
    return KNOWN.resolved(parse_search_terms(json.dumps({"needle": {"value": value, "columns": columns}})))


def test_columns_of_tables_are_resolved_with_their_types() -> None:
    first, second, third = resolved("1961-02-03", "public.members.born", "PUBLIC.orders.member_id", "*.birth")
    assert (first.table, first.columns, first.type) == ("public.members", ("born",), ValueType.DATE)
    assert (second.table, second.columns, second.type) == ("public.orders", ("member_id",), None)
    assert (third.table, third.columns, third.type) == ("", ("birth",), None)
    (pay,) = resolved("12.50", "public.members.pay")
    assert pay.type is ValueType.DECIMAL
    (any_table,) = resolved(42, "id")
    assert (any_table.table, any_table.columns, any_table.type) == ("", ("id",), ValueType.INTEGER)
    (unseen,) = resolved(42, "public.new.anything")
    assert (unseen.table, unseen.columns) == ("public.new", ("anything",))


@pytest.mark.parametrize("column", ["public.members.idd", "public.memberz.id", "members.id", "idd", "public.members"])
def test_unknown_columns_are_refused(column: str) -> None:
    only_seen = TableColumns({table: columns for table, columns in KNOWN.columns.items() if columns})
    with pytest.raises(ConfigError, match=r"needle names the column .*, which no table has") as refused:
        only_seen.resolved([SearchTerm("needle", "4711", (column,))])
    assert "4711" not in str(refused.value)
    assert "public.members.id" in refused.value.remedy


def test_any_column_may_be_named_where_no_table_is_known() -> None:
    term = SearchTerm("needle", "4711", ("anything",))
    assert TableColumns().resolved([term]) == (term,)


def schema(**columns: str) -> str:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return json.dumps({"metaData": {"schemaString": json.dumps({"type": "struct", "fields": fields})}})


def table_file(folder: Path, table: str, name: str, columns: dict[str, Any]) -> None:
    path = folder / "silver" / "shop" / table / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.fixture
def lakehouse(tmp_path: Path) -> Path:
    folder = tmp_path / "lakehouse"
    for table, columns in (
        ("public.members", {"id": "long", "born": "date"}),
        ("public.orders", {"id": "long", "member_id": "long"}),
    ):
        log = folder / "silver" / "shop" / table / "_delta_log" / "00000000000000000000.json"
        log.parent.mkdir(parents=True)
        log.write_text(schema(**columns))
    return folder


def test_columns_are_read_from_the_logs(lakehouse: Path) -> None:
    known = table_columns({"public.members": ["old_name"], "public.later": []}, Folder(lakehouse))
    assert known.columns == {
        "public.members": {"id": "long", "born": "date", "old_name": ""},
        "public.orders": {"id": "long", "member_id": "long"},
        "public.later": {},
    }


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("silver/shop/public.members/part-0.parquet", "public.members"),
        ("history/shop/public.members/_delta_log/0.json", "public.members"),
        ("silver/shop/public.orders/part-0.parquet", "public.orders"),
        ("silver/shop/public.other/part-0.parquet", ""),
        ("shop.public.members-0/00000000000000000000.log", "public.members"),
        ("topics/shop.public.orders/partition=0/a.json", "public.orders"),
        ("bronze/shop/part-0.parquet", None),
        ("shop.public.members2-0/00000000000000000000.log", None),
        ("public.members/a", None),
        ("bronze/public.members/part-0.parquet", None),
    ],
)
def test_path_tells_whose_rows_a_file_holds(name: str, table: str | None) -> None:
    assert table_of(name, ["public.members", "public.orders"]) == table


def events(folder: Path, *rows: tuple[str | None, dict[str, Any]]) -> None:
    path = folder / "bronze" / "shop" / "part-0.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {
        "source_table": pa.array([table for table, _ in rows], pa.string()),
        "key": [json.dumps({"id": row["id"]}).encode() for _, row in rows],
        "value": [json.dumps({"after": row}).encode() for _, row in rows],
    }
    pq.write_table(pa.table(columns), path, compression="none")


def found(lakehouse: Path, *columns: str, value: Any = 4711) -> set[tuple[str, str]]:
    known = table_columns({}, Folder(lakehouse))
    terms = known.resolved(parse_search_terms(json.dumps({"needle": {"value": value, "columns": columns}})))
    scan: PlaceScan
    (scan,) = scan_places([Folder(lakehouse)], terms, tables=[*known.columns])
    return {(f.file, f.part) for f in scan.findings.values()}


def test_id_of_another_table_is_no_residue(lakehouse: Path) -> None:
    table_file(lakehouse, "public.orders", "a.parquet", {"id": [4711], "member_id": [1]})
    events(lakehouse, ("public.orders", {"id": 4711}), ("public.members", {"id": 1}))
    assert found(lakehouse, "public.members.id") == set()
    assert found(lakehouse, "id")
    assert found(lakehouse, "public.orders.member_id") == set()


def test_id_of_its_own_table_is_a_residue(lakehouse: Path) -> None:
    table_file(lakehouse, "public.members", "a.parquet", {"id": [4711], "born": [1]})
    events(lakehouse, ("public.orders", {"id": 1}), ("public.members", {"id": 4711}))
    parts = found(lakehouse, "public.members.id")
    assert ("silver/shop/public.members/a.parquet", "row group 0, column id") in parts
    bronze = {part for file, part in parts if file == "bronze/shop/part-0.parquet"}
    assert bronze == {"row group 0, column key", "row group 0, column value"}


@pytest.mark.parametrize("table", [None, "public.unknown"])
def test_event_of_an_unknown_table_may_be_of_any(lakehouse: Path, table: str | None) -> None:
    events(lakehouse, (table, {"id": 4711}))
    assert found(lakehouse, "public.members.id")


def test_type_of_the_column_is_that_of_the_term(lakehouse: Path) -> None:
    events(lakehouse, ("public.members", {"id": 1, "born": -3254}), ("public.orders", {"id": -3254}))
    assert {part for _, part in found(lakehouse, "public.members.born", value="1961-02-03")} == {
        "row group 0, column value"
    }


def test_term_of_any_table_counts_in_all_rows(lakehouse: Path) -> None:
    events(lakehouse, ("public.orders", {"id": 4711}))
    terms = (SearchTerm("a", "4711", ("id",), table="public.members"), SearchTerm("mail", "anna@mail.example"))
    path = lakehouse / "bronze" / "shop" / "part-1.parquet"
    pq.write_table(pa.table({"source_table": ["public.orders"], "value": [b"ANNA@mail.example"]}), path)
    (scan,) = scan_places([Folder(lakehouse)], terms, tables=["public.orders"])
    assert {f.needle for f in scan.findings.values()} == {"mail"}
    assert [n.columns for n in build_report(terms, [], []).needles] == [("public.members.id",), ()]


def test_canaries_stand_in_the_searched_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = [
        SearchTerm("a", "4711", ("id",), table="public.members"),
        SearchTerm("b", "4711", ("address.zip", "other")),
    ]
    (check,) = (c for c in check_canaries([], terms) if c.format == "searched columns")
    assert (check.canaries, check.missed) == (9, ())
    # A scanner that takes the next column is caught, and one that takes any.
    monkeypatch.setattr(column_canaries._ColumnCanary, "file", property(lambda c: f"silver/x/other/{c.term.value}"))
    (check,) = column_canaries.check_columns(terms[:1])
    assert check.missed == ("canary: column public.members.id: row group 0, column id",)


def test_scan_refuses_unknown_columns(lakehouse: Path, tmp_path: Path) -> None:
    needles = tmp_path / "needles.json"
    run = CliRunner().invoke
    for column, is_refused in (("public.members.idd", True), ("public.members.id", False)):
        needles.write_text(json.dumps({"needle": {"value": 4711, "columns": [column]}}))
        scanned = run(app, ["scan", str(written(tmp_path, {})), "--needle-file", str(needles)])
        assert isinstance(scanned.exception, ConfigError) is is_refused, scanned.output
    assert scanned.exit_code == 0, (scanned.output, scanned.exception)
    assert "needle in public.members.id" in " ".join(scanned.stdout.split())


def test_owner_of_rows_is_read_once_a_file_has_it() -> None:
    out = io.BytesIO()
    pq.write_table(pa.table({"table": ["a"], "x": [1]}), out)
    from ingest.proof.scan.parquet import owner_column

    assert owner_column(out) == "table"
    assert owner_column(io.BytesIO(b"PAR1")) is None
