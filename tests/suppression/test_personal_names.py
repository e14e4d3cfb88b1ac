"""Columns that messages tell under other names."""

from __future__ import annotations

import pytest

from ingest.errors import TableUnusable
from ingest.evolution.followed import renamed_away
from ingest.evolution.lives import lives
from ingest.suppression.personal_names import PERSONAL_RENAMED, gone_columns, require_new_names
from tests.evolution.versions import column, seen, told


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["mail"], ("mail", "email")), (["MAIL"], ("mail", "email")), (["mail", "Email"], None), (["id"], None)],
)
def test_column_that_has_left_its_declared_name_is_found(names: list[str], expected: tuple[str, str] | None) -> None:
    now = lives([told(10, column("id", 1), column("mail", 2)), told(20, column("id", 1), column("email", 2))])
    assert renamed_away(names, now) == expected


def test_name_of_a_dropped_column_is_not_renamed() -> None:
    now = lives([told(10, column("id", 1), column("mail", 2)), told(20, column("id", 1), column("email", 3))])
    assert renamed_away(["mail"], now) is None


def test_each_setting_has_to_name_the_column_as_it_is_called_now() -> None:
    now = lives([told(10, column("id", 1), column("mail", 2)), told(20, column("id", 1), column("email", 2))])
    both = {"mail", "email"}
    require_new_names("public.people", {"personal": both, "shred": both, "subject": {"email"}}, now)
    for setting, word in (("shred", "too"), ("subject", "instead")):
        with pytest.raises(TableUnusable, match=f"which {setting} names, to 'email'") as refused:
            require_new_names("public.people", {"personal": both, setting: {"mail"}}, now)
        assert refused.value.code == PERSONAL_RENAMED
        assert f"name 'email' under tables: {{public.people: {{{setting}: …}}}} {word}" in refused.value.remedy


def test_column_that_newer_events_lack_is_gone_until_they_have_it_again() -> None:
    settings = {"subject": ["Member_id"], "personal": ["name", "absent"]}
    versions = [seen(10, "id", "member_id", "name"), seen(20, "id", "owner_id", "name")]
    assert gone_columns(settings, lives(versions)) == (("subject", "Member_id"),)
    assert gone_columns({"subject": ["member_id", "owner_id"]}, lives(versions)) == ()
    assert gone_columns(settings, lives([*versions, seen(30, "id", "member_id", "name")])) == ()
