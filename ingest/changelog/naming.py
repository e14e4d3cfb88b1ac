"""The names of topics, tables and sequence columns that a pipeline's file gives."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F

from ingest.changelog.forms import Form
from ingest.changelog.origin import UNNAMED, TableNaming, origin

EVENT_BYTES = 64 * 1024 * 1024
"""The most bytes of a value, unless a pipeline's file says otherwise."""
_READING_VERSION = 3
"""The version of this reading in `Naming.digest`. Raise it if the same records yield other events."""


@dataclass(frozen=True)
class Naming:
    """Names of topics and tables that the envelope alone doesn't give.

    `topic_tables`: (topic, table) pairs. `sequences`: (table, column) pairs, the column that orders the table's changes
    if the source has no position. `names`: the form of the table names in both; bronze has `schema.table`. `forms`:
    (topic, form) pairs of topics whose records don't tell it. `event_bytes`: the most bytes of a value that is read.
    """

    topic_tables: tuple[tuple[str, str], ...] = ()
    sequences: tuple[tuple[str, str], ...] = ()
    names: TableNaming = field(default_factory=TableNaming)
    forms: tuple[tuple[str, Form], ...] = ()
    heartbeat_prefix: str = "__debezium-heartbeat"
    transaction_suffix: str = "transaction"
    event_bytes: int = EVENT_BYTES

    @property
    def may_have_other_forms(self) -> bool:
        """True if the pipeline's file names tables or forms of topics: only then records of other forms are read."""
        return bool(self.topic_tables or self.forms)

    @property
    def digest(self) -> str:
        """A hash, equal for namings that read the same records as the same events."""
        # The text is that of earlier versions, since archives store its hash: change no name in it.
        mapped = f"{{{', '.join(map(repr, sorted(self.names.mapped)))}}}" if self.names.mapped else ""
        names = f"TableNames(parts={self.names.parts!r}, mapped=frozenset({mapped}))"
        text = (
            f"{_READING_VERSION} Naming(topic_tables={self.topic_tables!r}, sequences={self.sequences!r}, "
            f"names={names}, heartbeat_prefix={self.heartbeat_prefix!r}, "
            f"transaction_suffix={self.transaction_suffix!r})"
        )
        if self.forms:
            text += f" forms={sorted((topic, str(form)) for topic, form in self.forms)!r}"
        if self.event_bytes != EVENT_BYTES:
            text += f" event_bytes={self.event_bytes}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def is_control(self, topic: Column, op: Column) -> Column:
        """Returns true for heartbeats and transaction boundaries. Records of a table that is called "transaction" are
        none: they have an op."""
        boundary = topic.endswith("." + self.transaction_suffix) & op.isNull()
        return topic.startswith(self.heartbeat_prefix + ".") | boundary

    def table(self, topic: Column, source: Column) -> Column:
        """Returns the table's name: that of `topic_tables`, else `schema.table` of the source, else the topic."""
        space = F.coalesce(source["schema"], source["db"])
        from_source = F.when(source["table"].isNotNull(), F.concat_ws(".", space, source["table"]))
        named = F.coalesce(from_source, topic)
        if not self.topic_tables:
            return named
        pairs = [F.lit(text) for pair in self.topic_tables for text in pair]
        return F.coalesce(F.element_at(F.create_map(*pairs), topic), named)

    def origin(self, topic: Column, source: Column) -> Column:
        """Returns the origin of the event's table; `UNNAMED` if `topic_tables` names the table."""
        found = F.coalesce(origin(source), F.lit(UNNAMED))
        mapped = [name for name, _ in self.topic_tables]
        return F.when(topic.isin(*mapped), UNNAMED).otherwise(found) if mapped else found

    def sequence(self, table: Column, after: Column, before: Column) -> tuple[Column, Column]:
        """Returns the value of the table's sequence column, and true if the table has one."""
        number = F.lit(None).cast("bigint")
        for name, column in self.sequences:
            value = F.coalesce(after.getField(column), before.getField(column))
            number = F.when(table == name, value.try_cast("bigint")).otherwise(number)
        return number, table.isin(*(name for name, _ in self.sequences))
