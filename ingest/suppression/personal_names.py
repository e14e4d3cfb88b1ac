"""Refuses to go on with a table whose personal column the source has renamed to a name that the settings don't have."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ingest.errors import TableUnusable
from ingest.evolution.followed import renamed_away
from ingest.evolution.life import Lives

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
