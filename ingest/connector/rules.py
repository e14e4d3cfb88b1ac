"""Forms of rules about a connector's properties."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ingest.connector.risk import Configuration, Reader, Risk

Rule = Callable[[Configuration, Reader], Risk | None]


def unless(name: str, good: Iterable[str], default: str, text: str, remedy: str, loses: bool = True) -> Rule:
    """A rule: the property `name` has one of the values `good`."""

    def rule(config: Configuration, _: Reader) -> Risk | None:
        value = config.get(name, default)
        if value.lower() in good:
            return None
        return Risk(name, value if name in config else f"{value} (default)", text, remedy, loses)

    return rule


def where(name: str, bad: Mapping[str, str], remedy: str, loses: bool = True) -> Rule:
    """A rule: the property `name` has none of the values `bad`, each of which comes with its text."""

    def rule(config: Configuration, _: Reader) -> Risk | None:
        value = config.get(name, "").lower()
        return Risk(name, value, bad[value], remedy, loses) if value in bad else None

    return rule


def if_set(names: Sequence[str], text: str, remedy: str) -> Rule:
    """A rule: none of the properties `names` is set. What it finds was chosen, so it loses nothing unawares."""

    def rule(config: Configuration, _: Reader) -> Risk | None:
        used = next((name for name in names if config.get(name)), None)
        return Risk(used, config[used], text, remedy, loses=False) if used else None

    return rule
