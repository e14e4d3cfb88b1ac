"""The byte patterns of a search term: what is searched in lower case, and what is compared where it is found."""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from ingest.proof.forms.anchors import MAX_VARIANTS, Around, anchors
from ingest.proof.forms.case_folding import case_units, number_of_variants, variants
from ingest.proof.forms.encodings import (
    IN_COLUMN,
    LOWER_CASE,
    OTHER_CASE,
    UPPER_CASE,
    WIDE,
    binary_spellings,
    hashes,
    spellings,
)
from ingest.proof.forms.typed_forms import AS_GIVEN, ISO_TEXT, UNSCALED, Form
from ingest.proof.scan.search_terms import SearchTerm

BEHIND = 1024
AHEAD = 64
# Bytes that may precede a value of a JSON key or of a comparison with a column.
_BEFORE_A_VALUE = tuple(bytes([c]) for c in b" \t\n:=>(,'\"[")
_NUMBER_BEGINS = re.compile(rb"(?<![\d.])$")
_NUMBER_ENDS = re.compile(rb"(?:\.0+)?(?!\d|\.\d|[eE][+-]?\d)")
_FRACTION_ENDS = re.compile(rb"0*(?!\d|[eE][+-]?\d)")
_WORD_ENDS = re.compile(rb"(?![\w\x80-\xff])")
_BASE64_ENDS = re.compile(rb"(?![\w+/=-])")


@dataclass(frozen=True)
class Pattern:
    """`begins`, `ends`: what has to precede the value, which starts `offset` bytes into the pattern, and what has to
    follow it. `exact`: the pattern in its own case, if that counts. `names`: encodings by the bytes that are found;
    `encoding` is that of others."""

    label: str
    encoding: str
    offset: int = 0
    begins: re.Pattern[bytes] | None = None
    ends: re.Pattern[bytes] | None = None
    exact: bytes | None = None
    around: Around | None = None
    names: Mapping[bytes, str] = field(default_factory=dict)

    def value_in(self, window: bytes | memoryview, first: int, end: int) -> tuple[str, int, int] | None:
        """Returns the encoding of the value whose pattern was found at `first` to `end`, and where it begins and ends;
        None if it isn't there."""
        found = bytes(window[first:end])
        if self.exact is not None and found[self.offset :] != self.exact:
            return None
        if self.ends is not None and not self.ends.match(bytes(window[end : end + AHEAD])):
            return None
        value = first + self.offset
        if self.begins is not None and not self.begins.search(bytes(window[max(0, value - BEHIND) : value])):
            return None
        if self.around is None:
            return self.names.get(found[self.offset :], self.encoding), first, end
        before = bytes(window[max(0, first - self.around.lead) : first])
        whole = self.around.value(before, found, bytes(window[end : end + self.around.trail]))
        return None if whole is None else (whole.encoding or self.encoding, first - whole.lead, end + whole.trail)


def patterns_of(term: SearchTerm) -> dict[bytes, list[Pattern]]:
    """Returns bytes in lower case → the patterns of a term that they may be of."""
    found: dict[bytes, dict[object, Pattern]] = {}
    for body, pattern in _patterns(term):
        # The first of several encodings of the same bytes is the plainest.
        found.setdefault(body, {}).setdefault((pattern.exact, pattern.begins, id(pattern.around)), pattern)
    return {body: list(patterns.values()) for body, patterns in found.items()}


def _patterns(term: SearchTerm) -> Iterator[tuple[bytes, Pattern]]:
    for form in term.forms:
        if not form.is_specific or term.columns:
            yield from _in_columns(term, form)
        elif isinstance(form.body, bytes):
            for body, is_exact in binary_spellings(form.body):
                yield body.lower(), Pattern(term.label, form.name, exact=body if is_exact else None)
        elif isinstance(form.body, str):
            yield from _texts(term, form.name, form.body)
        elif _written(form) != term.value:
            yield _written(form).encode(), _number(term.label, form)
    for text in (term.value, *_as_keys(term)):
        for body, algorithm, is_exact in hashes(text):
            yield body.lower(), Pattern(term.label, algorithm, exact=body if is_exact else None)


def _texts(term: SearchTerm, name: str, text: str) -> Iterator[tuple[bytes, Pattern]]:
    cases = {text.upper(): UPPER_CASE, text.lower(): LOWER_CASE, text: AS_GIVEN} if name == AS_GIVEN else {}
    names = {_utf8(case): encoding for case, encoding in cases.items()}
    ends = _ends_of_text(text) if name == ISO_TEXT else None
    for variant in _variants(text):
        for body, encoding in spellings(variant).items():
            ending = None if encoding in WIDE else ends
            if encoding == AS_GIVEN and name == AS_GIVEN:
                yield body, Pattern(term.label, OTHER_CASE, ends=ending, names=names)
            else:
                yield body, Pattern(term.label, name if encoding == AS_GIVEN else encoding, ends=ending)
    if name == AS_GIVEN:
        for anchor in anchors(text):
            yield anchor.body, Pattern(term.label, anchor.encoding, exact=anchor.exact, around=anchor.around)


def _variants(text: str) -> Iterator[str]:
    """Yields the text in each case of its letters that are not ASCII or, if these are too many, in the usual ones."""
    units = case_units(text)
    if number_of_variants(units) <= MAX_VARIANTS:
        yield from variants(units)
    else:
        cases = (text, text.upper(), text.lower(), text.title(), text.casefold())
        yield from dict.fromkeys(cases)


def _number(label: str, form: Form) -> Pattern:
    return Pattern(label, form.name, begins=_NUMBER_BEGINS, ends=_ends_of_number(form.body))


def _in_columns(term: SearchTerm, form: Form) -> Iterator[tuple[bytes, Pattern]]:
    name = IN_COLUMN if form.name == AS_GIVEN else form.name
    begins = after_column(term.short_columns)
    if isinstance(form.body, bytes):
        # JSON has them in base64; Postgres prints them in hexadecimal.
        # Nothing writes the bytes of a decimal in hexadecimal, and short texts look like them.
        in_hex = [(form.body.hex().encode(), False)] if form.name != UNSCALED else []
        for body, is_exact in ((base64.b64encode(form.body), True), *in_hex):
            for before in (*_BEFORE_A_VALUE, *((b"\\x",) if not is_exact else ())):
                exact = body if is_exact else None
                yield (before + body).lower(), Pattern(term.label, name, len(before), begins, _BASE64_ENDS, exact)
        return
    text = _written(form)
    is_number = not isinstance(form.body, str) or (name == IN_COLUMN and term.number is not None)
    ends = _ends_of_number(form.body) if is_number else _ends_of_text(text) if name == ISO_TEXT else _WORD_ENDS
    for variant in _variants(text):
        for composed in {variant, unicodedata.normalize("NFC", variant), unicodedata.normalize("NFD", variant)}:
            once = {json.dumps(composed, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}
            for value in map(_utf8, once | {json.dumps(escaped)[1:-1] for escaped in once}):
                for before in _BEFORE_A_VALUE:
                    yield (before + value).lower(), Pattern(term.label, name, len(before), begins, ends)


def _written(form: Form) -> str:
    return f"{form.body:f}" if isinstance(form.body, Decimal) else str(form.body)


def _ends_of_number(body: str | int | Decimal | bytes) -> re.Pattern[bytes]:
    return _FRACTION_ENDS if "." in str(body) else _NUMBER_ENDS


def _ends_of_text(text: str) -> re.Pattern[bytes]:
    """Returns what may follow a time: zeros of its fraction, a zone."""
    return _FRACTION_ENDS if "." in text else _NUMBER_ENDS


def _as_keys(term: SearchTerm) -> Iterator[str]:
    """Yields the JSON of a key that consists of this column alone, which is the text that hashes of keys are made
    of."""
    for column in term.columns:
        values = [json.dumps(term.value, ensure_ascii=False)]
        if term.number is not None:
            values.append(term.value)
        for value in values:
            yield f"{{{json.dumps(column, ensure_ascii=False)}:{value}}}"


def after_column(columns: Sequence[str]) -> re.Pattern[bytes]:
    """Returns a pattern that ends where a value of one of these columns begins: after its JSON key, also in an array or
    in a field of an object that stands for the value, after `column =`, and within `column IN (…)`, as Spark prints
    expressions with their ids."""
    names = b"|".join(one for c in columns for one in _names(c))
    column = rb"(?<![\w\x80-\xff])(?:" + names + rb")"
    compared = column + rb"`?(?:#\d+L?)?\s*"
    quote = rb"(?:\\*['\"])?(?:\\+x)?$"
    within = rb"(?:\{[^{}\[\]]{0,80}:\s*|\[(?:[^\[\]{}]{0,900}[,\s])?)?"
    json_key = column + rb"\\*\"\s*:\s*" + within + quote
    equal = compared + rb"(?:<=>|==?)\s*" + quote
    listed = compared + rb"IN(?:SET)?\s*\(?[^()]{0,900}(?<=[(,\s])" + quote
    return re.compile(rb"(?:" + json_key + rb")|(?:" + equal + rb")|(?:" + listed + rb")", re.IGNORECASE)


def _names(column: str) -> Iterator[bytes]:
    """Yields a column's name, and that of a field of a struct as JSON nests it."""
    yield re.escape(column.encode())
    if "." in column:
        yield rb"\\*\"\s*:\s*\{(?:[^{}]{0,900},)?\s*\\*\"".join(re.escape(part.encode()) for part in column.split("."))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
