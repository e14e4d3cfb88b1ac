"""The digest of a naming. Archives store it, so it may change only with the naming."""

from __future__ import annotations

from ingest.changelog.forms import Form
from ingest.changelog.naming import Naming
from ingest.changelog.origin import TableNaming


def test_naming_digest_is_stable() -> None:
    one = TableNaming("server.schema.table", frozenset({"a'b"}))
    assert Naming().digest == "7cddf78ff57677ab"
    assert Naming(topic_tables=(("a", "b"),), names=one).digest == "37c29c00ab7423e7"


def test_declared_forms_are_in_the_digest() -> None:
    one, other = (Naming(forms=(("t", form),)).digest for form in (Form.UPSERT, Form.UNWRAPPED))
    assert one == "c6096d5f8df767f3"
    assert len({one, other, Naming().digest}) == 3


def test_naming_digest_is_independent_of_the_order_of_topics() -> None:
    names = [TableNaming(mapped=frozenset(topics)) for topics in (("x.y", "b", "c"), ("c", "x.y", "b"))]
    assert {Naming(names=n).digest for n in names} == {Naming(names=names[0]).digest}
    assert Naming(
        topic_tables=(("a", "b"),), names=TableNaming("server.schema.table", frozenset({"x.y", "b"}))
    ).digest == ("a5d3a4f086df66ed")
