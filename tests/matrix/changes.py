"""Tables of which each changes in one way, for what becomes of it by the policy and by the form of the events."""

from __future__ import annotations

from dataclasses import dataclass

SCHEMA = "changing"
PREPARED = f"""
    CREATE SCHEMA {SCHEMA};
    CREATE TYPE {SCHEMA}.mood AS ENUM ('on', 'off');
    CREATE DOMAIN {SCHEMA}.percent AS int DEFAULT 50 CHECK (VALUE <= 100);
"""
_WITH_V = "CREATE TABLE {t} (id int PRIMARY KEY, v int); INSERT INTO {t} VALUES (1, 1), (2, 2)"
_WITH_W = "CREATE TABLE {t} (id int PRIMARY KEY, v int, w int DEFAULT 7); INSERT INTO {t} VALUES (1, 1, 7), (2, 2, 8)"
_DROP_W = "ALTER TABLE {t} DROP w; UPDATE {t} SET v = 12 WHERE id = 2"
_THIRD = "UPDATE {t} SET v = 22 WHERE id = 2; INSERT INTO {t} (id, v) VALUES (3, 3)"


@dataclass(frozen=True)
class Changing:
    """A table. `name`: in the schema. `text`: its change, as the documentation names it. `before`: statements from
    before the connector. `phases`: statements; the connector reads what one did before the next one."""

    name: str
    text: str
    before: str
    phases: tuple[str, ...]

    @property
    def table(self) -> str:
        return f"{SCHEMA}.{self.name}"

    def statements(self, phase: int) -> str:
        """Returns the statements of a phase; of -1 those from before."""
        text = self.before if phase < 0 else self.phases[phase] if phase < len(self.phases) else ""
        return text.replace("{t}", self.table).replace("{name}", self.name)


def _added(name: str, column: str) -> Changing:
    return Changing(name, "a column is added", _WITH_V, (f"ALTER TABLE {{t}} ADD w {column}; {_THIRD}",))


def _retyped(name: str, text: str, type_: str, values: tuple[str, str, str], to: str, third: str) -> Changing:
    one, two, three = values
    before = f"CREATE TABLE {{t}} (id int PRIMARY KEY, v {type_}); INSERT INTO {{t}} VALUES (1, {one}), (2, {two})"
    insert = f"UPDATE {{t}} SET v = {three} WHERE id = 2; INSERT INTO {{t}} VALUES (3, {third})"
    return Changing(name, text, before, (f"ALTER TABLE {{t}} ALTER v TYPE {to}; {insert}",))


def _altered(name: str, text: str, *alters: str, third: str = _THIRD) -> Changing:
    last = f"{alters[-1]}; {third}"
    return Changing(name, text, _WITH_V, (*alters[:-1], last))


_KEYED = (
    "CREATE TABLE {t} (id int, v int, k int NOT NULL, PRIMARY KEY (%s)); INSERT INTO {t} VALUES (1, 1, 5), (2, 2, 5)"
)
_REKEYED = "ALTER TABLE {t} DROP CONSTRAINT {name}_pkey, ADD PRIMARY KEY (%s)"
_KEYLESS = (
    "CREATE TABLE {t} (v int, k int); ALTER TABLE {t} REPLICA IDENTITY FULL; INSERT INTO {t} VALUES (1, 5), (2, 6)"
)

CHANGES = (
    _added("plain", "int"),
    _added("constant", "int DEFAULT 7"),
    _added("constant_not_null", "int NOT NULL DEFAULT 7"),
    _added("volatile", "float8 DEFAULT random()"),
    _added("array", "int[] DEFAULT '{1,2}'"),
    _added("moment", "timestamptz DEFAULT '2026-01-01 08:00+02'"),
    _added("domain", f"{SCHEMA}.percent"),
    _added("enum", f"{SCHEMA}.mood DEFAULT 'on'"),
    Changing(
        "key_column",
        "a column of the key is added",
        _WITH_V,
        (
            "ALTER TABLE {t} ADD k int NOT NULL DEFAULT 1, DROP CONSTRAINT {name}_pkey, ADD PRIMARY KEY (id, k);"
            "UPDATE {t} SET v = 22 WHERE id = 2; INSERT INTO {t} VALUES (3, 3, 3), (1, 4, 2)",
        ),
    ),
    Changing("dropped", "a column is dropped", _WITH_W, (f"ALTER TABLE {{t}} DROP w; {_THIRD}",)),
    Changing(
        "back", "a column is dropped and added again", _WITH_W, (_DROP_W, f"ALTER TABLE {{t}} ADD w int; {_THIRD}")
    ),
    Changing(
        "back_as_text",
        "a column is dropped and added again with another type",
        _WITH_W,
        (_DROP_W, f"ALTER TABLE {{t}} ADD w text DEFAULT 'new'; {_THIRD}"),
    ),
    _altered(
        "renamed",
        "a column is renamed",
        "ALTER TABLE {t} RENAME v TO w",
        third="UPDATE {t} SET w = 22 WHERE id = 2; INSERT INTO {t} VALUES (3, 3)",
    ),
    _altered(
        "renamed_case",
        "a column is renamed to another case",
        'ALTER TABLE {t} RENAME v TO "V"',
        third='UPDATE {t} SET "V" = 22 WHERE id = 2; INSERT INTO {t} VALUES (3, 3)',
    ),
    _altered(
        "renamed_key",
        "a column of the key is renamed",
        "ALTER TABLE {t} RENAME id TO no",
        third="UPDATE {t} SET v = 22 WHERE no = 2; INSERT INTO {t} VALUES (3, 3)",
    ),
    _retyped("wider", "a type gets wider", "int", ("1", "2", "22"), "bigint", "9007199254740993"),
    _retyped("wider_array", "a type gets wider", "int[]", ("'{1,NULL}'", "'{}'", "'{22}'"), "bigint[]", "'{3}'"),
    _retyped("exact", "a whole number becomes numeric", "int", ("1", "2", "22"), "numeric(20,2)", "3.25"),
    _retyped("narrower", "a type gets narrower", "bigint", ("1", "2", "22"), "int", "3"),
    _retyped("to_text", "a type changes to text", "int", ("1", "2", "'22'"), "text", "'three'"),
    _retyped("longer_text", "a text may get longer", "varchar(5)", ("'a'", "'b'", "'bb'"), "text", "'three or more'"),
    _retyped(
        "text_to_date",
        "a type changes from text to a date",
        "text",
        ("'2026-01-01'", "'2026-01-02'", "'2026-02-02'"),
        "date USING v::date",
        "'2026-03-03'",
    ),
    _retyped(
        "date_to_moment",
        "a type gets wider",
        "date",
        ("'2026-01-01'", "'2026-01-02'", "'2026-02-02 10:00'"),
        "timestamp",
        "'2026-03-03 11:30'",
    ),
    _retyped(
        "computed",
        "a type is computed by an expression",
        "bigint",
        ("15", "26", "22"),
        "int USING (v % 10)::int",
        "3",
    ),
    _altered("not_null", "a column becomes NOT NULL", "ALTER TABLE {t} ALTER v SET NOT NULL"),
    _altered(
        "default",
        "a default changes",
        "ALTER TABLE {t} ALTER v SET DEFAULT 9",
        third="UPDATE {t} SET v = 22 WHERE id = 2; INSERT INTO {t} (id) VALUES (3)",
    ),
    Changing(
        "other_key",
        "the key changes",
        "CREATE TABLE {t} (id int PRIMARY KEY, v int NOT NULL); INSERT INTO {t} VALUES (1, 1), (2, 2)",
        (
            "ALTER TABLE {t} DROP CONSTRAINT {name}_pkey, ADD PRIMARY KEY (v);"
            "UPDATE {t} SET id = 1 WHERE v = 2; INSERT INTO {t} VALUES (3, 3); DELETE FROM {t} WHERE v = 1",
        ),
    ),
    Changing(
        "longer_key",
        "the key changes",
        _KEYED % "id",
        (_REKEYED % "id, k" + "; UPDATE {t} SET v = 22 WHERE id = 2; INSERT INTO {t} VALUES (1, 3, 6)",),
    ),
    Changing(
        "shorter_key",
        "a column leaves the key",
        _KEYED % "id, k",
        (_REKEYED % "id" + "; UPDATE {t} SET k = 7 WHERE id = 2; INSERT INTO {t} VALUES (3, 3, 6)",),
    ),
    _altered(
        "identity",
        "the replica identity changes",
        "ALTER TABLE {t} REPLICA IDENTITY FULL",
        third=_THIRD + "; DELETE FROM {t} WHERE id = 1",
    ),
    Changing("gone", "the table is dropped", _WITH_V, ("DROP TABLE {t}",)),
    Changing(
        "anew",
        "the table is created anew",
        _WITH_V,
        (
            "DROP TABLE {t}; CREATE TABLE {t} (id int PRIMARY KEY, w text);"
            "ALTER PUBLICATION {publication} ADD TABLE {t}; INSERT INTO {t} VALUES (3, 'three')",
        ),
    ),
    Changing(
        "former",
        "the table is renamed",
        _WITH_V,
        (
            f"ALTER TABLE {{t}} RENAME TO later; UPDATE {SCHEMA}.later SET v = 22 WHERE id = 2;"
            f"INSERT INTO {SCHEMA}.later VALUES (3, 3)",
        ),
    ),
    Changing("emptied", "the table is truncated", _WITH_V, ("TRUNCATE {t}; INSERT INTO {t} VALUES (3, 3)",)),
    Changing(
        "part",
        "a partition is attached",
        f"CREATE TABLE {SCHEMA}.whole (id int, v int, PRIMARY KEY (id)) PARTITION BY RANGE (id); {_WITH_V}",
        (f"ALTER TABLE {SCHEMA}.whole ATTACH PARTITION {{t}} FOR VALUES FROM (1) TO (10); {_THIRD}",),
    ),
    Changing(
        "keyless_added",
        "a column is added",
        _KEYLESS,
        ("ALTER TABLE {t} ADD w int DEFAULT 7; DELETE FROM {t} WHERE v = 1; INSERT INTO {t} VALUES (3, 7, 8)",),
    ),
    Changing(
        "keyless_dropped",
        "a column is dropped",
        _KEYLESS,
        ("ALTER TABLE {t} DROP k; DELETE FROM {t} WHERE v = 1; INSERT INTO {t} VALUES (3)",),
    ),
    Changing(
        "keyless_renamed",
        "a column is renamed",
        _KEYLESS,
        ("ALTER TABLE {t} RENAME k TO w; DELETE FROM {t} WHERE v = 1; INSERT INTO {t} VALUES (3, 7)",),
    ),
    Changing(
        "key_gained",
        "the table gets a key",
        _KEYLESS,
        ("ALTER TABLE {t} ADD PRIMARY KEY (v); UPDATE {t} SET k = 66 WHERE v = 2; INSERT INTO {t} VALUES (3, 7)",),
    ),
    Changing(
        "key_lost",
        "the table loses its key",
        "CREATE TABLE {t} (id int PRIMARY KEY, v int); ALTER TABLE {t} REPLICA IDENTITY FULL;"
        "INSERT INTO {t} VALUES (1, 1), (2, 2)",
        (
            "ALTER TABLE {t} DROP CONSTRAINT {name}_pkey;"
            "UPDATE {t} SET v = 22 WHERE id = 2; INSERT INTO {t} VALUES (3, 3)",
        ),
    ),
)
PHASES = max(len(change.phases) for change in CHANGES)
