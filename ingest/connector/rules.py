"""Constructors of rules for a connector's properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ingest.connector.risk import Configuration, ReaderSettings, Risk

Rule = Callable[[Configuration, ReaderSettings], Risk | None]


def unless(name: str, good: Iterable[str], default: str, text: str, remedy: str, loses: bool = True) -> Rule:
    """Returns a rule that reports a risk unless the property `name` has one of the values `good`."""

    def rule(config: Configuration, _: ReaderSettings) -> Risk | None:
        value = config.get(name, default)
        if value.lower() in good:
            return None
        return Risk(name, value if name in config else f"{value} (default)", text, remedy, loses)

    return rule


def where(name: str, bad: Mapping[str, str], remedy: str, loses: bool = True) -> Rule:
    """Returns a rule that reports a risk if the property `name` has a value in `bad` (value → effect)."""

    def rule(config: Configuration, _: ReaderSettings) -> Risk | None:
        value = config.get(name, "").lower()
        return Risk(name, value, bad[value], remedy, loses) if value in bad else None

    return rule


def if_set(names: Sequence[str], text: str, remedy: str) -> Rule:
    """Returns a rule that reports the first of the properties `names` that is set, with `loses` False: it was a
    choice."""

    def rule(config: Configuration, _: ReaderSettings) -> Risk | None:
        used = next((name for name in names if config.get(name)), None)
        return Risk(used, config[used], text, remedy, loses=False) if used else None

    return rule
