"""Whole images: the change of the highest position per key, held against the one position that is stored of its row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ingest.changelog.change import (
    COLUMN_POSITIONS,
    COLUMN_POSITIONS_TYPE,
    EVENT_ID,
    LOCATION,
    LOCATION_TYPE,
    MOVED,
    NEW_KEY,
    POSITION_COLUMN,
    content,
    quoted,
)
from ingest.changelog.compaction import compacted
from ingest.changelog.images import Shape
from ingest.changelog.merge import ACTION, BURY, DELETE, INSERT, REFUSE, SURROGATE, TIED, UPDATE, effective, surrogate
from ingest.changelog.position import POSITION, literal
from ingest.cut import cut, let_go
from ingest.run.judging.verdict import Contradicted, Judged, Stored, Truncated, above_truncate
from ingest.tables.beside import begun, beside
from ingest.tables.deletion_vectors import numbers_of
from ingest.tables.page_index import FEW_KEYS
from ingest.tables.tombstones import MOVED_AT
from ingest.tables.vector_store import RowNumbers
from ingest.tables.writes import Writes

_PARTIAL = "_partial"
"""Of a state: whether columns of it are older than itself, or unknown."""
_LAYERED = "_layered"
"""Whether columns of the row are."""
_WHOLE = 4
"""Of each event so many rows and tombstones: of more it is less work to send the keys to where these are."""
_SENT = 2_000_000
"""So many tombstones at most are sent to each task whole: a quarter of a gigabyte."""
_EVENTS_A_PART = 1_000_000
"""As rows that are sorted they take half a gigabyte."""


def by_row(
    changes: DataFrame, shape: Shape, stored: Stored, truncated: Truncated, events: int, sure: bool = False
) -> Judged | None:
    """None where positions of single columns are needed. `events`: about so many changes there are. `sure`: what stands
    where its row does is not taken for the same, but compared first."""
    key, few = list(shape.identity), events <= FEW_KEYS
    brought = _lean(above_truncate(changes, truncated))
    parts = None if few else _parts(brought, events)
    states = compacted(brought, key, parts).withColumn(SURROGATE, surrogate(key))
    whole = _most_is_wanted(stored, events)
    if not whole:
        # A plan that decodes is large: cut here, what follows plans over plain rows.
        states = cut(states)
        if stored.pending.exists() and not stored.pending.matching(states, key, few).isEmpty():
            return None
    judged = cut(_held_against(states, stored, key, few, whole))
    told = _told(judged, few)
    if not whole and not few:
        let_go(states)
    if told.layered or (told.moved and _moved_later(changes, judged, key)):
        return None
    proof = None
    if told.tied and sure:
        judged, told = _without_doubled(judged, told, shape, stored)
    elif told.tied:
        # At once: of all that is left to do before a commit it takes longest.
        proof = begun(partial(_prove_doubled, judged.where(TIED), told, shape, stored))
        told = told.without(told.tied, told.tied_moves)
    applied, effect = told.effects, _effect() if sure else _effect() & ~F.col(TIED)
    if told.moves:  # An event that moves a row is one event with two effects.
        applied = judged.where(effect).select(EVENT_ID).distinct().count()
    written = told.actions - {BURY, REFUSE}
    states = judged.where(effect & (F.col(ACTION) != BURY))
    rows = states.withColumn(COLUMN_POSITIONS, F.lit(None).cast(COLUMN_POSITIONS_TYPE))
    dead = judged.where(F.col(ACTION).isin(DELETE, BURY)).select(SURROGATE, POSITION_COLUMN)
    return Judged(
        Writes(rows, told.actions, told.files, told.effects, parts, told.gone) if written else None,
        None,
        dead if told.actions & {DELETE, BURY} else None,
        judged.where(F.col(ACTION) == REFUSE) if told.refused else None,
        applied,
        told.refused,
        proof,
    )


def _parts(changes: DataFrame, events: int) -> int:
    """As many as Spark is told to make, or several times as many, where no task could sort such a part in its
    memory."""
    told = int(changes.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return told * max(1, -(-events // (told * _EVENTS_A_PART)))


def _most_is_wanted(stored: Stored, events: int) -> bool:
    """Whether so many events may be about most of what is stored, or nothing is: then nobody has to know their keys
    before all is read."""
    if not any(table.exists() for table in (stored.silver, stored.graves, stored.pending)):
        return True
    if events <= FEW_KEYS or stored.pending.exists():
        return False
    rows, graves = stored.silver.size(), stored.graves.size()
    return rows + graves <= _WHOLE * events and graves <= _SENT


def _held_against(states: DataFrame, stored: Stored, key: list[str], few: bool, whole: bool) -> DataFrame:
    """The states with what they do to the rows and tombstones of their keys, where these are, and when they moved.
    `whole`: these are sought among all that is stored."""
    with beside(partial(_buried, states, stored, key, few, whole)) as looking:
        live = _live(states, stored, key, few, whole)
    buried, horizon = looking.result()
    judged = effective(states, live, buried, key, None if horizon is None else literal(horizon))
    if live is None:
        judged = judged.withColumns({LOCATION: F.lit(None).cast(LOCATION_TYPE), _LAYERED: F.lit(False)})
    return judged if buried is not None else judged.withColumn(MOVED_AT, F.lit(None).cast(POSITION))


def _live(states: DataFrame, stored: Stored, key: list[str], few: bool, whole: bool) -> DataFrame | None:
    if not stored.silver.exists():
        return None
    # Of all that they hold a reader needs to open but the smallest part.
    layered = F.map_values(COLUMN_POSITIONS)["before"].isNotNull().alias(_LAYERED)
    columns = [quoted(k) for k in dict.fromkeys([*key, POSITION_COLUMN])]
    live = stored.silver.located() if whole else stored.silver.matching(states, key, few)
    return live.select(*columns, LOCATION, layered)


def _buried(
    states: DataFrame, stored: Stored, key: list[str], few: bool, whole: bool
) -> tuple[DataFrame | None, tuple[int, ...] | None]:
    """Tombstones, and the gc horizon."""
    if not stored.graves.exists():
        return None, None
    buried = F.broadcast(stored.graves.all()) if whole else stored.graves.matching(states, key, few)
    return buried, stored.graves.horizon()


def _lean(changes: DataFrame) -> DataFrame:
    """Changes without what by now is null in each that can be judged here: every plan to come would write it down."""
    return changes.withColumn(_PARTIAL, F.col(COLUMN_POSITIONS).isNotNull()).drop(COLUMN_POSITIONS, NEW_KEY)


def _effect() -> Column:
    return F.col(ACTION).isNotNull() & (F.col(ACTION) != REFUSE)


@dataclass(frozen=True)
class _Told:
    """What a verdict comes to. `states` by their action, and the file of the row that they take away; `tied`: those of
    them that stand where their row does. `gone`: the rows that the others take away, where states are few. The numbers
    count states: those that are one half of a move, ask for positions of single columns, whose key has moved before,
    and are both tied and one half of a move."""

    states: Counter[tuple[str, str | None]]
    tied: Counter[tuple[str, str | None]]
    gone: Mapping[str, RowNumbers] | None
    moves: int
    layered: int
    moved: int
    tied_moves: int

    @property
    def actions(self) -> frozenset[str]:
        return frozenset(action for action, _ in self.states)

    @property
    def files(self) -> frozenset[str]:
        return frozenset(file for _, file in self.states if file is not None)

    @property
    def refused(self) -> int:
        return self.states[REFUSE, None]

    @property
    def effects(self) -> int:
        return sum(count for (action, _), count in self.states.items() if action != REFUSE)

    def without(self, states: Counter[tuple[str, str | None]], moves: int) -> _Told:
        """The same where these take no effect, of which so many are one half of a move."""
        # What comes to nothing is no longer there.
        return replace(self, states=self.states - states, moves=self.moves - moves)


_ACTIONS = (INSERT, UPDATE, DELETE, BURY, REFUSE)
_COUNTED = ("moves", "layered", "moved", "tied_moves")


def _told(judged: DataFrame, few: bool) -> _Told:
    """`few`: so are the states."""
    counts = _counts()
    if few:
        counts = (*counts, _gone(judged.sparkSession))
    rows = judged.groupBy(_file()).agg(*counts).collect()  # a row per file
    states = Counter({(action, row["_file"]): row[action] for row in rows for action in _ACTIONS if row[action]})
    tied = Counter({(UPDATE, row["_file"]): row["tied"] for row in rows if row["tied"]})
    gone = {row["_file"]: RowNumbers(*row["gone"]) for row in rows if row["gone"]["count"]} if few else None
    return _Told(states, tied, gone, *(sum(row[name] for row in rows) for name in _COUNTED))


@cache
def _counts() -> tuple[Column, ...]:
    """Of the states of a file how many have each action, and what else `_Told` counts of them."""
    effect, tied = _effect(), F.col(TIED)
    counted = {action: F.col(ACTION) == action for action in _ACTIONS}
    counted |= {
        "tied": tied,
        "moves": effect & F.col(MOVED),
        "layered": (effect & F.col(_PARTIAL)) | F.col(_LAYERED),
        "moved": F.col(MOVED_AT).isNotNull(),
        "tied_moves": tied & F.col(MOVED),
    }
    return tuple(F.count_if(those).alias(name) for name, those in counted.items())


@cache
def _gone(spark: SparkSession) -> Column:
    """The numbers of the rows that go from a file, if nothing comes of what is tied."""
    row = F.when(_effect() & ~F.col(TIED), F.col(LOCATION)["row"])
    return numbers_of(spark, row).alias("gone")


def _file() -> Column:
    return F.when(_effect(), F.col(LOCATION)["file"]).alias("_file")


def _moved_later(changes: DataFrame, judged: DataFrame, key: list[str]) -> bool:
    """Whether an event is older than a move of its row to another key, which then may have to be told of it."""
    moved = judged.where(F.col(MOVED_AT).isNotNull()).select(*map(quoted, key), MOVED_AT)
    older = changes.join(F.broadcast(moved), key).where(F.col(POSITION_COLUMN) < F.col(MOVED_AT))
    return not older.isEmpty()


def _prove_doubled(tied: DataFrame, told: _Told, shape: Shape, stored: Stored) -> None:
    """Raises Contradicted where one of these states says something else than the row where it stands."""
    key, said, count = list(shape.identity), content(shape.names), sum(told.tied.values())
    saying = tied.select(*map(quoted, key), said.alias("_said"))
    files = {file for _, file in told.tied if file is not None}
    there = stored.silver.named(saying, key, ["_said"], files, few=count <= FEW_KEYS)
    (same,) = there.agg(F.count_if(F.col("_said") == said).alias("same")).collect()
    if same["same"] != count:
        raise Contradicted(shape.table)


def _without_doubled(judged: DataFrame, told: _Told, shape: Shape, stored: Stored) -> tuple[DataFrame, _Told]:
    """What stands where its row does and says the same was sent twice: it takes no effect."""
    columns, key = shape.names, list(shape.identity)
    tied = judged.where(TIED)
    there = stored.silver.matching(tied, key).select(*map(quoted, key), content(columns).alias("_there"))
    saying = tied.select(*map(quoted, key), ACTION, _file(), MOVED, content(columns).alias("_said"))
    same = cut(saying.join(there, key).where(F.col("_said") == F.col("_there")).drop("_said", "_there"))
    counts = (F.count(F.lit(1)).alias("states"), F.count_if(MOVED).alias("moves"))
    counted = same.groupBy(ACTION, "_file").agg(*counts).collect()  # a row per action and file
    doubled = Counter({(row[ACTION], row["_file"]): row["states"] for row in counted})
    # A change that can't be applied may have the same key.
    known = F.broadcast(same.select(*map(quoted, key), F.lit(True).alias("_same")))
    found = judged.join(known, key, "left")
    found = found.withColumn(ACTION, F.when(~(F.col(TIED) & F.col("_same").isNotNull()), F.col(ACTION))).drop("_same")
    return found, replace(told, gone=None).without(doubled, sum(row["moves"] for row in counted))
