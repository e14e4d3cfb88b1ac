"""Compares the columns that settings of personal data name with those that the table has by now: a table whose column
has got another name waits, and a column that is gone is told."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ingest.errors import TableUnusable
from ingest.evolution.followed import renamed_away
from ingest.evolution.life import Lives
from ingest.names import caseless

PERSONAL_RENAMED = "personal-column-renamed"
"""The code of a table whose personal column has got a name that the pipeline's file doesn't have."""


def require_new_names(table: str, settings: Mapping[str, Collection[str]], told: Lives) -> None:
    """Raises TableUnusable if a column that a setting names has got a name that the setting doesn't have.

    `settings`: setting → names of columns of personal data. `told`: what messages tell of the table."""
    for setting, names in settings.items():
        renamed = renamed_away(names, told)
        if renamed is not None:
            former, name = renamed
            how = "instead" if setting == "subject" else "too"
            raise TableUnusable(
                PERSONAL_RENAMED,
                f"the source has renamed the column {former!r}, which {setting} names, to {name!r}",
                f"name {name!r} under tables: {{{table}: {{{setting}: …}}}} {how}, and wherever else the file names "
                f"{former!r}; then run again",
            )


def gone_columns(settings: Mapping[str, Collection[str]], now: Lives) -> tuple[tuple[str, str], ...]:
    """Returns (setting, column) pairs of columns that settings name and no newer event has, but for those in whose
    place another one has come that the setting names too: where only events show a table, a column may have got
    another name."""
    shown = {caseless(name): life for name, life in now.shown.items()}
    found = []
    for setting, names in sorted(settings.items()):
        lives = {name: shown[caseless(name)] for name in sorted(names) if caseless(name) in shown}
        begins = {life.begin for life in lives.values()}
        found += [(setting, name) for name, life in lives.items() if life.end is not None and life.end not in begins]
    return tuple(found)
