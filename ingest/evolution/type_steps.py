"""The types that a column's values pass, as told and seen versions show them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Protocol

from ingest.evolution.life import TypeStep
from ingest.values.postgres_cast import Cast, Known, has_cast, is_kept, is_reversible, known_values
from ingest.values.types import INTEGERS, Kind, LogicalType, may_show, widest

_INTEGER_TYPES = ("smallint", "integer", "bigint")
_TEXTS = {"text", "character varying"}
_TIMES = ("time without time zone", "timestamp without time zone", "timestamp with time zone")
_ALL_DIGITS = 6
_PADDED = ("character", "character[]")
_WRITTEN_OTHERWISE = ("bit", "money", "hstore")
"""Types whose values in events aren't their texts: true for 1, 7.00 for $7.00, JSON."""


class _Typed(Protocol):
    """A type of a column, as of `TypeStep` and `ColumnDefinition`."""

    @property
    def type(self) -> LogicalType | None: ...

    @property
    def source_type(self) -> str: ...


class ColumnCannotHold(Exception):
    """A column is stored by a type that holds no value of the newest type that is known of it."""


def with_step(steps: tuple[TypeStep, ...], step: TypeStep) -> tuple[TypeStep, ...]:
    """Returns a life's types with that of its next version.

    A told type holds from its message on, in the form that events have: the first event that shows it replaces what the
    message implies, and so does an older one if no message told before. A type that only repeats the last one adds
    nothing."""
    *earlier, last = steps
    source_type = last.source_type or step.source_type
    if step.is_unknown or step.source_type not in ("", source_type):
        return (*steps, step)
    if step.type in (None, last.type) or not (step.is_shown or last.source_type == "") or _is_shown_as(last, step):
        is_shown = last.is_shown or (step.is_shown and step.type is not None)
        return _merged(earlier, replace(last, source_type=source_type, is_shown=is_shown))
    if last.type is None or (step.is_shown and not last.is_shown):
        return _merged(earlier, replace(last, type=step.type, source_type=source_type, is_shown=step.is_shown))
    return (*steps, step)


def _is_shown_as(shown: TypeStep, told: TypeStep) -> bool:
    """Returns True if events may have shown a told type by another one, as the connector's settings are."""
    if shown.type is None or told.type is None or not shown.is_shown or told.is_shown:
        return False
    return may_show(shown.type, told.type)


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


def casts(own: LogicalType, steps: Sequence[TypeStep], target: LogicalType) -> tuple[Cast, ...] | None:
    """Returns the conversions that a value of the type `own` passes, the last one to `target`, by which its column is
    stored; empty if they leave it as it is; None if only the source knows the value.

    `steps`: the first is the type at the value's position, of which `own` may be a narrower form, the others are those
    that it passes. An integer stays as wide as it is. Raises ColumnCannotHold if `target` holds none of the last."""
    if are_lost(steps):
        return None
    is_form = bool(steps) and steps[0].type is not None and widest(own, steps[0].type) is not None
    found: list[Cast] = []
    current = own
    for step in steps[1:] if is_form else steps:
        after = step.type
        if after is not None and after != current and not _are_integers(current, after):
            found.append(Cast(current, after, step.zone))
            current = after
    if all(is_kept(one.before, one.after) for one in found) and is_kept(own, target):
        return ()
    if current == target:
        return tuple(found)
    if not has_cast(current, target):
        raise ColumnCannotHold(current, target)
    return (*found, Cast(current, target))


def is_of_type(own: LogicalType, step: TypeStep) -> bool:
    """Returns False if events at a position of `step` can't have the type `own`: something that changed it is not known
    yet."""
    type_ = step.type
    return type_ is None or not step.is_shown or widest(own, type_) is not None or has_cast(own, type_)


def are_lost(steps: Sequence[TypeStep]) -> bool:
    """Returns True if only the source knows what becomes of a value that passes all steps."""
    return any(step.is_unknown for step in steps[1:]) or any(_is_other_form(*pair) for pair in pairwise(steps))


def are_reversible(steps: Sequence[TypeStep]) -> bool:
    """Returns True if a value that has passed all steps tells the one before them."""
    if any(step.type is None for step in steps) or are_lost(steps):
        return False
    return all(map(is_reversible, passed_casts(steps)))


def passed_casts(steps: Sequence[TypeStep]) -> list[Cast]:
    """Returns the casts between the steps whose types are known, but for those between integers."""
    return [
        Cast(old.type, new.type, new.zone)
        for old, new in pairwise(steps)
        if old.type is not None and new.type is not None and not _are_integers(old.type, new.type)
    ]


def keep_values(steps: Sequence[TypeStep]) -> bool:
    """Returns True if values of the type of the first step stay as they are in all others."""
    known = [step.type for step in steps if step.type is not None]
    return not are_lost(steps) and all(is_kept(*pair) or _are_integers(*pair) for pair in pairwise(known))


def stored_type(steps: Sequence[TypeStep]) -> tuple[LogicalType | None, bool]:
    """Returns the type by which a column is stored, and True if it is not the widest of all types that it has had: the
    widest one since the last that can't hold the values before it. None if no type is known."""
    found: LogicalType | None = None
    is_other = False
    for type_ in (step.type for step in steps if step.type is not None):
        wide = type_ if found is None else widest(found, type_)
        is_other |= wide is None
        found = type_ if wide is None else wide
    is_scaled = found is not None and found.kind is Kind.DECIMAL_TEXT
    return (LogicalType(Kind.DECIMAL_TEXT) if is_scaled else found), is_other


def values_after(before: _Typed, after: _Typed, is_computed: bool = False) -> Known:
    """Returns which values of a column are known after a change of its type: every one where only events show one of
    the types, which then decide. `is_computed`: an expression of the source computed them."""
    if is_computed:
        return Known.NONE
    if before.type is None or after.type is None:
        return Known.EVERY
    return Known.NONE if _is_other_form(before, after) else known_values(before.type, after.type)


def _is_other_form(before: _Typed, after: _Typed) -> bool:
    """Returns True if a cast at the source makes other values than one of the types in events: of types that look alike
    there, such as json and jsonb, of those whose values are written in another way there, and to a shorter one."""
    if "" in (before.source_type, after.source_type):
        return False
    (word, digits), (new_word, new_digits) = _name(before.source_type), _name(after.source_type)
    if before.type != after.type:
        is_shorter = {word, new_word} <= {*_TIMES} and digits > new_digits
        return is_shorter or new_word in _PADDED or (word in _WRITTEN_OTHERWISE and new_word in _TEXTS)
    if word in _TIMES:
        return word != new_word or digits > new_digits
    kept = {word, new_word} <= _TEXTS or (word, new_word) == ("jsonb", "json") or word == new_word == "numeric"
    return not kept and before.source_type != after.source_type


def _name(source_type: str) -> tuple[str, int]:
    """Returns a type's name without its digits, and these; 6 without any, as of times."""
    digits = re.search(r"\((\d+)", source_type)
    return re.sub(r"\([\d,]+\)", "", source_type), int(digits[1]) if digits else _ALL_DIGITS


def _are_integers(one: LogicalType, other: LogicalType) -> bool:
    return one.kind in INTEGERS and other.kind in INTEGERS


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
