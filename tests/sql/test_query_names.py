"""The names of tables in queries, and the suggestions for unknown ones."""

from __future__ import annotations

import pytest

from ingest.names import nearest
from ingest.sql.query_names import PipelineTable, QueryNames, query_names

A, B, C = (PipelineTable(p, t, {"": f"/{p}/{t}"}) for p, t in (("a", "public.x"), ("b", "public.x"), ("b", "public.y")))


def paths(names: QueryNames) -> dict[str, str]:
    return {one.text: one.path for one in names.tables}


def test_name_of_two_pipelines_needs_the_pipeline() -> None:
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


def test_tables_of_the_chosen_pipeline_come_first() -> None:
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
def test_no_name_means_two_tables(sources: list[PipelineTable]) -> None:
    names = query_names(sources, {"system.accounts": "/accounts"})
    found = paths(names)
    assert len(found) == len(names.tables)
    for text, others in names.several.items():
        assert text not in found
        for other in others:
            assert other in found or other in {"delta.`/1`", "delta.`/2`"}


def test_source_table_named_like_a_system_table() -> None:
    names = query_names([PipelineTable("a", "system.accounts", {"": "/own"})], {"system.accounts": "/accounts"})
    assert names.several == {"system.accounts": ("a.system.accounts", "delta.`/accounts`")}


def test_remedy_depends_on_whether_the_lakehouse_has_tables() -> None:
    own = {"system.accounts": "/accounts"}
    assert "the right folder" in query_names([], own).absent("public.x").remedy
    assert "did you mean public.y" in query_names([C], own).absent("public.yy").remedy
    assert "nothing was ever written" in query_names([C], own).absent("system.accounts").problem


def test_nearest_names_are_suggested() -> None:
    known = ["public.orders", "public.items", "shop.public.orders"]
    assert nearest("public.order", known, "") == "did you mean public.orders or shop.public.orders?"
    assert nearest("PUBLIC.ITEMS", known, "") == "did you mean public.items?"
    assert nearest("items", known, "") == "did you mean public.items?"
    assert nearest("zzz", known, "") == "take one of: public.items, public.orders, shop.public.orders"
    assert nearest("zzz", [f"t{n}" for n in range(100)], "see the list") == "see the list"
    assert nearest("zzz", [], "there is none") == "there is none"
