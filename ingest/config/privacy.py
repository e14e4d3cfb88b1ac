"""The configuration of personal data: which rows belong to which subject, which columns are personal, and what an
erasure leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self

from pydantic import BeforeValidator, Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from ingest.config.section import Section, Table, Text


class Subject(Section):
    """How a table's rows lead to subjects: each row is a subject itself, or belongs to one over foreign keys."""

    of: Text | None = Field(default=None, description="The kind of subject that each row is, such as member.")
    key: Text | None = Field(default=None, description="With of: the key column that identifies subjects.")
    through: Annotated[Mapping[Text, Table], Field(min_length=1)] | None = Field(
        default=None,
        description="column: table. A foreign key, and the table whose key it holds; that table's rows lead on. A row "
        "with several foreign keys belongs to the subjects of each.",
    )

    @model_validator(mode="after")
    def _require_key_or_through(self) -> Self:
        if (self.of is None) == (self.through is None) or (self.of is None) != (self.key is None):
            raise ValueError("should be {of: member, key: id} or {through: {member_id: public.members}}")
        return self


class Constant(Section):
    """A mask that replaces all values by one."""

    constant: bool | int | float | str = Field(description="The value that every erased row holds then.")


class Generalised(Section):
    """A mask that replaces exact values by coarser ones."""

    generalise: Literal["year", "month"] | PositiveInt = Field(
        description="year or month: the begin of the year or month of a time. A whole number: the nearest multiple of "
        "it at or below a number."
    )


def _on_erasure(value: Any) -> Any:
    """Validates the union in one step, for one error instead of one for each of its members."""
    if value == "delete" or (isinstance(value, Mapping) and value and all(map(_is_mask, value.values()))):
        return value
    raise PydanticCustomError(
        "on_erasure",
        "should be delete, or for each column null, {{constant: …}} or {{generalise: year, month or a whole number}}",
    )


def _is_mask(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, Mapping) or len(value) != 1:
        return False
    ((how, what),) = value.items()
    if how == "generalise":
        return what in ("year", "month") or (isinstance(what, int) and not isinstance(what, bool) and what > 0)
    return how == "constant" and isinstance(what, bool | int | float | str)


OnErasure = Annotated[Literal["delete"] | Mapping[Text, Constant | Generalised | None], BeforeValidator(_on_erasure)]


class Personal(Section):
    """The personal data in a table."""

    subject: Subject | None = Field(default=None, description="How the table's rows lead to subjects.")
    personal: tuple[Text, ...] = Field(
        default=(), description="Columns with personal values, which are kept out of logs, statistics and names."
    )
    on_erasure: OnErasure = Field(
        default="delete",
        description="How a subject's row is erased: delete, or column: null, {constant: …} or {generalise: …}.",
    )
    shred: tuple[Text, ...] = Field(
        default=(),
        description="Personal columns that are encrypted under a key of their subject, from bronze on. An erasure "
        "destroys the key, which makes every copy of these values unreadable at once.",
    )
    erase_on_delete: bool = Field(
        default=False,
        description="For a table of subjects: a delete of a row at the source requests the subject's erasure.",
    )

    @property
    def masks(self) -> Mapping[str, Constant | Generalised | None]:
        """Returns column → replacement for rows that are masked; empty if rows are deleted."""
        return {} if self.on_erasure == "delete" else self.on_erasure

    @property
    def personal_columns(self) -> Mapping[str, Collection[str]]:
        """Returns setting → columns with personal values that it names."""
        found = {"personal": self.personal, "on_erasure": self.masks, "shred": self.shred}
        return {setting: names for setting, names in found.items() if names}

    @property
    def collected_columns(self) -> frozenset[str]:
        """Returns the columns with personal values, of which an erasure leaves no value. A key is one only if the file
        says so: the statistics of others stay in a table's log."""
        return frozenset(name for names in self.personal_columns.values() for name in names)

    @property
    def erasure_columns(self) -> frozenset[str]:
        """Returns all columns that these settings name."""
        found = set(self.collected_columns)
        if self.subject is not None:
            found |= {*(self.subject.through or ()), *([self.subject.key] if self.subject.key else ())}
        return frozenset(found)

    @model_validator(mode="after")
    def _require_subjects_for_deletes(self) -> Self:
        if self.erase_on_delete and (self.subject is None or self.subject.of is None):
            raise ValueError("has erase_on_delete, and its rows are no subjects: give it subject: {of: …, key: …}")
        return self

    @model_validator(mode="after")
    def _require_sound_shredding(self) -> Self:
        if not self.shred:
            return self
        other = sorted(set(self.shred) - set(self.personal))
        if other:
            raise ValueError(f"shreds {other[0]!r}, which it does not call personal: name it there too")
        if self.subject is None or len(self.subject.through or {}) > 1:
            raise ValueError("shreds columns under their subject's key, but its rows don't lead to exactly one subject")
        coarse = [c for c in self.shred if isinstance(self.masks.get(c), Generalised)]
        if coarse:
            raise ValueError(f"on_erasure generalises {coarse[0]!r}, which is shredded: use null or a constant")
        return self

    @model_validator(mode="after")
    def _require_complete_masks(self) -> Self:
        left = sorted(set(self.personal) - set(self.masks)) if self.masks else []
        if left:
            raise ValueError(f"on_erasure leaves the personal column {left[0]!r} as it is: name it there, or delete")
        return self


class Described(Protocol):
    """The other settings of a table."""

    @property
    def columns(self) -> Mapping[str, str]: ...
    @property
    def primary_key(self) -> tuple[str, ...] | None: ...
    @property
    def sequence(self) -> str | None: ...


def require_sound(settings: Personal, table: Described) -> None:
    """Raises ValueError if the privacy settings of a table contradict its other settings."""
    key = set(table.primary_key or ())
    unknown = sorted(settings.erasure_columns - set(table.columns) - key) if table.columns else []
    if unknown:
        raise ValueError(f"calls {unknown[0]!r} a column, which is not in columns: declare it there, or correct it")
    if table.sequence in settings.personal:
        raise ValueError(
            f"orders its changes by the personal column {table.sequence!r}: positions are kept in statistics and "
            "beside deleted keys. Order them by another one"
        )
    of = settings.subject.key if settings.subject is not None else None
    if of is not None and key and key != {of}:
        raise ValueError(f"has subjects by {of!r}, and another primary_key: subjects are identified by the primary key")
    if settings.masks and table.sequence is not None:
        raise ValueError(
            f"orders its changes by its own column {table.sequence!r}, so changes after a masking can't be ordered: "
            "use on_erasure: delete"
        )
    identifying = (
        key | ({of} if of is not None else set()) | set(settings.subject.through or () if settings.subject else ())
    )
    hidden = sorted(set(settings.shred) & identifying)
    if hidden:
        raise ValueError(f"shreds {hidden[0]!r}, which identifies rows or leads to their subject")
    kept = sorted(set(settings.masks) & (key | ({of} if of is not None else set())))
    if kept:
        raise ValueError(f"on_erasure masks the key column {kept[0]!r}: it identifies rows, so use delete")


def require_chains(tables: Mapping[str, Personal]) -> None:
    """Raises ValueError if a table's rows don't lead to a subject."""
    kinds: dict[str, str] = {}
    for table, settings in tables.items():
        kind = settings.subject.of if settings.subject is not None else None
        if kind is not None and kinds.setdefault(kind, table) != table:
            raise ValueError(f"tables.{table}: subjects of the kind {kind!r} are the rows of {kinds[kind]} already")
        for column, parent in parents(settings):
            if parent not in tables:
                raise ValueError(f"tables.{table}: subject.through.{column} names {parent!r}, which is not in tables")
            if tables[parent].subject is None:
                raise ValueError(
                    f"tables.{table}: subject.through.{column} ends at {parent!r}, which leads to no subject: give it "
                    "one, {of: …, key: …} or {through: …}"
                )
    for table in tables:
        _require_no_cycle(table, tables, ())


def parents(settings: Personal) -> Iterable[tuple[str, str]]:
    """Returns the foreign keys: the column, and the table whose key it holds."""
    return (settings.subject.through or {}).items() if settings.subject is not None else ()


def _require_no_cycle(table: str, tables: Mapping[str, Personal], path: tuple[str, ...]) -> None:
    if table in path:
        circle = " → ".join((*path[path.index(table) :], table))
        raise ValueError(f"tables: subject.through leads in a circle: {circle}")
    for _, parent in parents(tables[table]):
        _require_no_cycle(parent, tables, (*path, table))


class Shredding(Section):
    """The keys under which shredded columns are encrypted."""

    key_store: Text = Field(
        description="The database that holds the keys, outside the lakehouse, as an SQLAlchemy URL: "
        "sqlite:////folder/file for one machine, postgresql+psycopg://user@host/database for several.",
    )
    master_key_file: Text = Field(
        description="A file with the master keys that wrap the data keys: on each line `VERSION HEX`, 32 bytes, the "
        "highest version for new keys. Readable by its owner alone (0600). Anyone who can read it can "
        "decrypt."
    )


class Privacy(Section):
    """Settings for erasures."""

    key_file: Text = Field(
        description="A file outside the lakehouse with the secret keys of the ledger's hashes: on each line `VERSION "
        "HEX`, 32 bytes or more, the highest version for new requests. Readable by its owner alone "
        "(0600)."
    )
    ledger_copy: Text | None = Field(
        default=None,
        description="Where the ledger is copied to, outside the lakehouse: a folder, or a bucket such as "
        "s3://bucket/prefix (with the options of archive.s3). Default: the archive; without one that ingest writes, "
        "the folder beside key_file that has its name and `.ledger`.",
    )
    snapshot_reads: Literal["merge", "suppress"] = Field(
        default="merge",
        description="What becomes of a snapshot read of an erased row after the cutoff: merge: it begins a new life; "
        "suppress: it is left out, as updates are until a create.",
    )
    request_topic: Text | None = Field(
        default=None,
        description="A topic of the source's brokers with requests for erasure, which `ingest erase` reads if no "
        'subject is given. A record\'s value is JSON: {"subject": "member:42", "reason": "…"}.',
    )
    shredding: Shredding | None = Field(default=None, description="Required if tables shred columns.")
    tombstones_in_topics: bool = Field(
        default=False,
        description="Write a null tombstone behind the last record of an erased key in a compacted topic of the "
        "source. The user needs Write on these topics. Other readers of the topics see a delete; other "
        "pipelines of ingest ignore it and need a request of their own.",
    )
    needle_days: int = Field(
        default=30,
        ge=0,
        description="Days for which an erased subject's values of personal columns are kept, encrypted and outside the "
        "lakehouse, to be searched for before the erasure is certified. They are destroyed with the certificate, or by "
        "the next `ingest erase` once these days have passed. 0: no values are collected.",
    )
    needle_folder: Text | None = Field(
        default=None,
        description="The folder with these values and their keys, outside the lakehouse. Default: the one beside "
        "key_file that has its name and `.needles`.",
    )
    keep_old_files_hours: int = Field(
        default=1,
        ge=0,
        description="Hours for which files stay that an erasure has replaced. Then they are deleted with all older "
        "versions of their tables: no query and no batch may take longer.",
    )

    @property
    def needles(self) -> str:
        """Returns the folder with the collected values of erased subjects."""
        return self.needle_folder or f"{self.key_file}.needles"


def require_ledger_keys(tables: Mapping[str, Personal], privacy: Privacy | None, lakehouse: Path) -> None:
    """Raises ValueError if the keys of the ledger's hashes are not declared, or are in the lakehouse with the
    hashes."""
    if privacy is None:
        if any(t.subject is not None for t in tables.values()):
            raise ValueError("tables lead to subjects, but privacy.key_file, with the ledger's keys, is missing")
    elif _is_inside(lakehouse, privacy.key_file):
        raise ValueError("privacy.key_file lies in the lakehouse: readers of its hashes could read their key too")
    elif privacy.ledger_copy is not None and _is_copied_inside(lakehouse, privacy.ledger_copy):
        raise ValueError("privacy.ledger_copy lies in the lakehouse: it would be lost with the ledger")
    elif _is_inside(lakehouse, privacy.needles):
        raise ValueError("privacy.needle_folder lies in the lakehouse, from which its values are erased")


def require_data_keys(tables: Mapping[str, Personal], privacy: Privacy | None, lakehouse: Path) -> None:
    """Raises ValueError if the keys of shredded columns are not declared, or lie in the lakehouse, whose copies would
    include them."""
    settings = privacy.shredding if privacy is not None else None
    if settings is None:
        raise ValueError("tables shred columns, but privacy.shredding, which names their keys, is missing")
    if asking := sorted(table for table, t in tables.items() if t.erase_on_delete):
        # A subject that was created again by then has values under the key that the request destroys.
        raise ValueError(
            f"tables shred columns, and deletes of {asking[0]} request erasure: use `ingest erase` instead"
        )
    if any(
        _is_inside(lakehouse, path)
        for path in (settings.master_key_file, settings.key_store.removeprefix("sqlite:///"))
    ):
        raise ValueError("privacy.shredding keeps keys in the lakehouse: copies of the lakehouse would include them")


def _is_copied_inside(lakehouse: Path, copy: str) -> bool:
    if "://" not in copy:
        return _is_inside(lakehouse, copy)
    root = str(lakehouse).replace("s3a:/", "s3:/", 1).rstrip("/")
    return f"{copy.replace('://', ':/', 1).rstrip('/')}/".startswith(f"{root}/")


def _is_inside(lakehouse: Path, path: str) -> bool:
    return Path(path).absolute().is_relative_to(lakehouse.absolute())
