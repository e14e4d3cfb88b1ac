"""The types that a column's values pass, as told and seen versions show them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ingest.evolution.life import TypeStep
from ingest.values.types import INTEGERS

_INTEGER_TYPES = ("smallint", "integer", "bigint")


def with_step(steps: tuple[TypeStep, ...], step: TypeStep) -> tuple[TypeStep, ...]:
    """Returns a life's types with that of its next version.

    A told type holds from its message on, in the form that events have: the first event that shows it replaces what the
    message implies. A type that only repeats the last one adds nothing."""
    *earlier, last = steps
    source_type = last.source_type or step.source_type
    if step.is_unknown or step.source_type not in ("", source_type):
        return (*steps, step)
    is_repeated = step.type in (None, last.type) or not (step.is_shown or last.source_type == "")
    if is_repeated:
        is_shown = last.is_shown or (step.is_shown and step.type is not None)
        return _merged(earlier, replace(last, source_type=source_type, is_shown=is_shown))
    if last.type is None or (step.is_shown and not last.is_shown):
        return _merged(earlier, replace(last, type=step.type, source_type=source_type, is_shown=step.is_shown))
    return (*steps, step)


def _merged(earlier: Sequence[TypeStep], last: TypeStep) -> tuple[TypeStep, ...]:
    """Returns the steps without the last one if it repeats the one before it."""
    if earlier and not last.is_unknown and earlier[-1].type == last.type:
        source_types = {earlier[-1].source_type, last.source_type} - {""}
        if len(source_types) < 2:
            return (*earlier[:-1], replace(earlier[-1], source_type="".join(source_types)))
    return (*earlier, last)


def not_passed(passed: Sequence[TypeStep], types: Sequence[TypeStep]) -> tuple[TypeStep, ...] | None:
    """Returns those of `types` that a value has not passed yet if it passed `passed`; None if these are others.

    A step from one integer type to another leaves the value as it is, and so does another form of one source type."""
    done = _distinct(passed)
    lengths = range(len(types) + 1)
    found = (n for n in lengths if _are_same(done, _distinct(types[:n])))
    number = next(found, None)
    return None if number is None else tuple(types[number:])


def _distinct(steps: Sequence[TypeStep]) -> list[TypeStep]:
    """Returns the steps without those that leave a value as the one before does."""
    found: list[TypeStep] = []
    for step in steps:
        if step.is_unknown or not found or not _is_same(found[-1], step):
            found.append(step)
    return found


def _are_same(some: Sequence[TypeStep], others: Sequence[TypeStep]) -> bool:
    return len(some) == len(others) and all(map(_is_same, some, others))


def _is_same(one: TypeStep, other: TypeStep) -> bool:
    if _is_integer(one) and _is_integer(other):
        return True
    if one.source_type and other.source_type:
        return one.source_type == other.source_type
    return one.type == other.type


def _is_integer(step: TypeStep) -> bool:
    if step.source_type:
        return step.source_type in _INTEGER_TYPES
    return step.type is not None and step.type.kind in INTEGERS
