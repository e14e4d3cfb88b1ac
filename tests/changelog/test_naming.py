"""The digest of a naming. Archives store it, so it may change only with the naming."""

from __future__ import annotations

from ingest.changelog.naming import Naming
from ingest.changelog.origin import TableNaming


def test_naming_digest_is_stable() -> None:
    one = TableNaming("server.schema.table", frozenset({"a'b"}))
    assert Naming().digest == "7cddf78ff57677ab"
    assert Naming(topic_tables=(("a", "b"),), names=one).digest == "37c29c00ab7423e7"


def test_naming_digest_is_independent_of_the_order_of_topics() -> None:
    names = [TableNaming(mapped=frozenset(topics)) for topics in (("x.y", "b", "c"), ("c", "x.y", "b"))]
    assert {Naming(names=n).digest for n in names} == {Naming(names=names[0]).digest}
    assert Naming(
        topic_tables=(("a", "b"),), names=TableNaming("server.schema.table", frozenset({"x.y", "b"}))
    ).digest == ("a5d3a4f086df66ed")
