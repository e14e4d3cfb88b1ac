"""Checks a pipeline file's declarations of tables and columns: for contradictions within the file, and against the
newest events of its topics."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ingest.changelog.connect_schema import DECLARABLE, declared_column
from ingest.changelog.reserved_names import is_reserved
from ingest.changelog.spelling import Spelling
from ingest.config import Pipeline, TableSettings
from ingest.errors import ConfigError
from ingest.names import caseless
from ingest.sources.newest_events import RecordShape, UnreadableTopic
from ingest.values.types import Kind

_WHOLE_NUMBERS = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)


def contradictions(pipeline: Pipeline) -> list[str]:
    """Returns a sentence for each declaration that is invalid or contradicts another one in the file."""
    found: list[str] = []
    for table, settings in pipeline.tables.items():
        found += [f"tables.{table}: {problem}" for problem in _of_columns(settings)]
    for where, tables in {"tables": tuple(pipeline.tables), "airflow.tables": pipeline.airflow.tables}.items():
        found += [f"{where}: {problem}" for table in tables if (problem := _of_table(pipeline, table))]
    return [*found, *_of_topics(pipeline)]


def _of_columns(settings: TableSettings) -> Iterator[str]:
    key = {caseless(column) for column in settings.primary_key or ()}
    for column, text in settings.columns.items():
        try:
            kind = declared_column(column, text).type.kind
        except ConfigError:
            word = re.split(r"[(<]", text)[0].strip()
            yield f"columns.{column}: there is no type {text!r}: {_hint(word, DECLARABLE)}"
            continue
        if caseless(column) in key and kind is Kind.UNKNOWN:
            yield f"primary_key: {column!r} is declared as unknown, which holds no value but NULL"
        if column == settings.sequence and kind not in _WHOLE_NUMBERS:
            yield f"sequence: {column!r} is declared as {text}, and changes are ordered by whole numbers"
    named = {*(settings.primary_key or ()), *settings.columns, *settings.erasure_columns, *settings.rename}
    spelling = _spelling(settings)
    for column in sorted({spelling.new_name(name) for name in named}):
        if is_reserved(column):
            yield f"{column!r} is a name that tables here use themselves, so no column can have it"
    if len(key) < len(settings.primary_key or ()):
        yield "primary_key: names a column twice, since names that differ in case only are one"


def _spelling(settings: TableSettings) -> Spelling:
    return Spelling(renamed=tuple(settings.names.items()))


def _of_table(pipeline: Pipeline, table: str) -> str:
    """Returns a sentence if the source settings exclude every event of `table`; otherwise an empty string."""
    source = pipeline.source
    names = (table, table.split(".", maxsplit=1)[-1])
    if source.exclude_tables and any(re.fullmatch(source.exclude_tables, name) for name in names):
        return f"{table!r} is left out by exclude_tables"
    if source.include_tables and not any(re.fullmatch(source.include_tables, name) for name in names):
        return f"{table!r} is left out by include_tables"
    if table in source.topic_tables.values():
        return ""
    if source.topics is not None:
        return _of_listed_topics(pipeline, table)
    prefix = source.debezium.topic_prefix or _leading_word(source.topic_pattern or "")
    topics = [f"{prefix}.{plain}" for plain in _plain_names(pipeline, table)]
    if prefix and not any(re.fullmatch(source.topic_pattern or "", topic) for topic in topics):
        return f"topic_pattern doesn't match {topics[-1]}, the topic of {table!r}"
    return ""


def _plain_names(pipeline: Pipeline, table: str) -> list[str]:
    """Returns the possible `schema.table` names of a table, whose name here may begin with a server or database."""
    parts, before = table.split("."), pipeline.source.table_names.count(".") - 1
    return [".".join(parts[n:]) for n in range(min(before, len(parts) - 1) + 1)]


def _of_listed_topics(pipeline: Pipeline, table: str) -> str:
    """Returns a sentence if no listed topic can hold `table`; otherwise an empty string.

    Debezium's topics are PREFIX.TABLE. A topic of another form may hold any table, so none is reported then."""
    topics = [topic for topic in pipeline.source.topics or () if topic not in pipeline.source.topic_tables]
    tables = [topic.split(".", 1)[1] for topic in topics if topic.count(".") >= 2]
    if any(_holds(topic, table, pipeline) for topic in topics) or len(tables) < len(topics):
        return ""
    return f"no topic of topics is of {table!r}: {_hint(table, tables)}"


def _holds(topic: str, table: str, pipeline: Pipeline) -> bool:
    """Returns True if the topic ends with the table's name: PREFIX.SCHEMA.TABLE, or the bare name if it is one word."""
    names = _plain_names(pipeline, table)
    return any(topic == name or ("." in name and topic.endswith(f".{name}")) for name in names)


def _leading_word(pattern: str) -> str:
    """Returns the literal text before the first dot of a pattern such as shop\\.public\\..*; empty if there is none."""
    found = re.match(r"([\w-]+)(\\\.|\[\.\])", pattern)
    return found[1] if found else ""


def _of_topics(pipeline: Pipeline) -> Iterator[str]:
    source = pipeline.source
    if source.topic_pattern is None:
        return
    offsets = {} if isinstance(source.start_offsets, str) else source.start_offsets
    of_topics = {"topic_tables": source.topic_tables, "record_forms": source.record_forms, "start_offsets": offsets}
    for where, topics in of_topics.items():
        for topic in topics:
            if not re.fullmatch(source.topic_pattern, topic):
                yield f"source.{where}: topic_pattern doesn't match {topic!r}, so it isn't read"


def mismatches(pipeline: Pipeline, shapes: Sequence[RecordShape | UnreadableTopic]) -> list[str]:
    """Returns a sentence for each declaration that the newest events contradict.

    A declared column that no event has may have been dropped, so it counts as a mistake only where a similar column
    exists that the file doesn't name. The others are in `unseen_columns`.
    """
    found = [f"topic {one.topic}: its records are {one.reason}" for one in shapes if isinstance(one, UnreadableTopic)]
    by_table = _by_table(shapes)
    for table in pipeline.tables:
        if table not in by_table:
            found += _of_unseen(pipeline, table, by_table)
    return [*found, *(sentence for sentence, is_wrong in _absent_columns(pipeline, by_table) if is_wrong)]


def unseen_columns(pipeline: Pipeline, shapes: Sequence[RecordShape | UnreadableTopic]) -> list[str]:
    """Returns a sentence for each declared column that the newest events don't have and that may have been dropped."""
    return [sentence for sentence, is_wrong in _absent_columns(pipeline, _by_table(shapes)) if not is_wrong]


def _by_table(shapes: Sequence[RecordShape | UnreadableTopic]) -> dict[str, RecordShape]:
    return {one.table: one for one in shapes if isinstance(one, RecordShape)}


def _absent_columns(pipeline: Pipeline, shapes: Mapping[str, RecordShape]) -> Iterator[tuple[str, bool]]:
    """Yields a sentence for each named column that the newest events don't have, and whether it can't be right."""
    for table, settings in pipeline.tables.items():
        if table not in shapes:
            continue
        columns = shapes[table].columns
        present = {caseless(name) for column in columns for name in (column, _spelling(settings).new_name(column))}
        named = [(where, name, is_needed) for where, names, is_needed in _named_columns(settings) for name in names]
        unnamed = [column for column in columns if caseless(column) not in {caseless(name) for _, name, _ in named}]
        for where, name, is_needed in named:
            if caseless(name) in present:
                continue
            near = bool(difflib.get_close_matches(name, unnamed, n=1))
            hint = _hint(name, unnamed if near else columns)
            yield f"tables.{table}.{where}: its newest events have no column {name!r}: {hint}", is_needed or near


def _of_unseen(pipeline: Pipeline, table: str, seen: Collection[str]) -> Iterator[str]:
    """A table of which no newest record is: it may be empty, or share a topic with others; or its name is wrong."""
    last_words = {one.rsplit(".", 1)[-1]: one for one in seen if one not in pipeline.tables}
    near = difflib.get_close_matches(table.rsplit(".", 1)[-1], last_words, n=1, cutoff=0.7)
    if near and not any(_holds(topic, table, pipeline) for topic in pipeline.source.topics or ()):
        yield f"tables: no newest record of any topic is of {table!r}: did you mean {last_words[near[0]]!r}?"


def _named_columns(settings: TableSettings) -> Iterable[tuple[str, Iterable[str], bool]]:
    """Yields settings, the columns that they name, and whether every event must have these."""
    yield "primary_key", settings.primary_key or (), True
    yield "sequence", (settings.sequence,) if settings.sequence else (), True
    yield "columns", settings.columns, False
    yield "rename", settings.rename, False
    yield "subject, personal, shred or on_erasure", sorted(settings.erasure_columns - {*settings.columns}), False


def _hint(word: str, known: Iterable[str]) -> str:
    names = list(dict.fromkeys(known))
    if word in names:
        return f"{word} takes other arguments, such as decimal(10,2), array<int64> or struct<a:int64>"
    near = difflib.get_close_matches(word, names, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names) or 'none'}"
