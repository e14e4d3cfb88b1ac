"""Entries of the catalog after columns were declared to be renamed."""

from __future__ import annotations

from ingest.evolution.policies import TableColumn
from ingest.evolution.revisions import AS_STORED, ColumnRevision
from ingest.lakehouse.catalog import CatalogEntry
from ingest.merge.table_schema import TableSchema
from tests.evolution.versions import INT, seen


def entry(*names: str) -> CatalogEntry:
    table_schema = TableSchema("t", ("id",), tuple(TableColumn(name, INT) for name in names))
    return CatalogEntry("shop", "path", table_schema, 1, (), versions=frozenset({seen(10, *names)}))


def test_a_renamed_column_has_its_stored_values_and_one_life() -> None:
    before = entry("id", "a")
    after = before.renamed({"a": "b"})
    assert after.table_schema.names == ["id", "b"]
    assert [(life.column, life.begin) for life in after.lives.columns] == [("id", None), ("b", None)]
    assert after.altered_since(before) == (ColumnRevision("b", "a", AS_STORED),)
    twice = after.renamed({"a": "c", "b": "c"})
    assert twice.altered_since(before) == (ColumnRevision("c", "a", AS_STORED),)
    assert twice.altered_since(after) == (ColumnRevision("c", "b", AS_STORED),)
    assert twice.altered_since(twice) == ()


def test_a_column_whose_new_name_is_taken_stays_unless_the_table_is_folded_anew() -> None:
    both = entry("id", "a", "b")
    assert both.renamed({"a": "b"}) is both
    assert both.renamed({"x": "y"}) is both
    assert both.renamed({"a": "B"}) is both, "names that differ in case are one"
    assert both.renamed({"a": "b"}, folded=True).renames == (("a", "b"),)
