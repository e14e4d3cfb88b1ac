"""The names of tables in queries, and the suggestions for unknown ones."""

from __future__ import annotations

import pytest

from ingest.names import nearest
from ingest.sql.query_names import PipelineTable, QueryNames, query_names

A, B, C = (PipelineTable(p, t, {"": f"/{p}/{t}"}) for p, t in (("a", "public.x"), ("b", "public.x"), ("b", "public.y")))


def paths(names: QueryNames) -> dict[str, str]:
    return {one.text: one.path for one in names.tables}


def test_a_name_that_two_pipelines_have_needs_the_pipeline() -> None:
    names = query_names([A, B, C], {})
    assert paths(names) == {
        "a.public.x": "/a/public.x",
        "b.public.x": "/b/public.x",
        "public.y": "/b/public.y",
        "b.public.y": "/b/public.y",
    }
    assert str(names.absent("public.x")) == (
        "public.x may be any of 2 tables → name the one that is meant: a.public.x or b.public.x"
    )


def test_the_pipeline_that_is_asked_wins_where_it_has_the_table() -> None:
    assert paths(query_names([A, B, C], {}, preferred="a"))["public.x"] == "/a/public.x"
    assert paths(query_names([A, B, C], {}, preferred="a"))["public.y"] == "/b/public.y"


@pytest.mark.parametrize(
    "sources",
    [
        [PipelineTable("a", "b.public.x", {"": "/1"}), PipelineTable("b", "public.x", {"": "/2"})],
        [
            PipelineTable("a", "public.x", {"": "/0", "__history": "/1"}),
            PipelineTable("a", "public.x__history", {"": "/2"}),
        ],
        [PipelineTable("a.b", "c.t", {"": "/1"}), PipelineTable("a", "b.c.t", {"": "/2"})],
    ],
    ids=["qualified", "history", "pipeline"],
)
def test_no_name_ever_means_two_tables(sources: list[PipelineTable]) -> None:
    names = query_names(sources, {"system.accounts": "/accounts"})
    found = paths(names)
    assert len(found) == len(names.tables)
    for text, others in names.several.items():
        assert text not in found
        for other in others:
            assert other in found or other in {"delta.`/1`", "delta.`/2`"}


def test_a_table_of_the_source_that_is_called_as_one_of_the_lakehouse() -> None:
    names = query_names([PipelineTable("a", "system.accounts", {"": "/own"})], {"system.accounts": "/accounts"})
    assert names.several == {"system.accounts": ("a.system.accounts", "delta.`/accounts`")}


def test_a_lakehouse_without_tables_is_told_apart_from_a_misspelt_name() -> None:
    own = {"system.accounts": "/accounts"}
    assert "the right folder" in query_names([], own).absent("public.x").remedy
    assert "did you mean public.y" in query_names([C], own).absent("public.yy").remedy
    assert "nothing was ever written" in query_names([C], own).absent("system.accounts").problem


def test_what_is_called_much_like_it_is_suggested() -> None:
    known = ["public.orders", "public.items", "shop.public.orders"]
    assert nearest("public.order", known, "") == "did you mean public.orders or shop.public.orders?"
    assert nearest("PUBLIC.ITEMS", known, "") == "did you mean public.items?"
    assert nearest("items", known, "") == "did you mean public.items?"
    assert nearest("zzz", known, "") == "take one of: public.items, public.orders, shop.public.orders"
    assert nearest("zzz", [f"t{n}" for n in range(100)], "see the list") == "see the list"
    assert nearest("zzz", [], "there is none") == "there is none"
