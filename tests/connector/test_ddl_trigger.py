"""The event triggers write the definition of a table into the log after each command that changes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from ingest.cli import app
from ingest.stack import Stack, postgres
from tests.connector.logical_messages import PUBLICATION, SLOT, Source

pytestmark = pytest.mark.integration
SETUP = f"""
    CREATE SCHEMA shop; CREATE SCHEMA other;
    CREATE PUBLICATION {PUBLICATION} FOR TABLES IN SCHEMA shop;
    CREATE TABLE shop.orders (id int PRIMARY KEY, "Odd, name" varchar(20) DEFAULT 'x' NOT NULL);
    INSERT INTO shop.orders VALUES (1), (2);
"""


@pytest.fixture(scope="module", params=["pginstall", pytest.param("pginstall18", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A server of Postgres 16, and one of 18."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(postgres, "_BINARIES", Path(request.param) / "bin")
        folder = tmp_path_factory.mktemp("server")
        folder.chmod(0o711)
        with Stack(folder / "stack", ("postgres",)) as running:
            yield running


@pytest.fixture
def source(server: Stack, request: pytest.FixtureRequest) -> Iterator[Source]:
    """A database of its own with the triggers and table `shop.orders (id, "Odd, name")`."""
    name = f"d{abs(hash(request.node.name))}"
    with psycopg.connect(server.postgres.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    found = Source(make_conninfo(server.postgres.dsn, dbname=name))
    found.connection.execute(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')".encode())
    try:
        found.connection.execute(SETUP.encode())
        found.connection.execute(sql().encode())
        found.changes()
        yield found
    finally:
        found.connection.execute(f"SELECT pg_drop_replication_slot('{SLOT}')".encode())
        found.connection.close()


def sql() -> str:
    result = CliRunner().invoke(app, ["connector", "ddl-trigger", "postgres"], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def columns(content: dict[str, Any]) -> dict[str, Any]:
    return {column["name"]: column for column in content["columns"]}


def types(content: dict[str, Any]) -> dict[str, str]:
    return {column["name"]: column["type"] for column in content["columns"]}


@pytest.mark.long
def test_running_again_sends_the_definitions_again(source: Source) -> None:
    (content,) = source.run(sql())
    assert (content["v"], content["tag"], content["schema"], content["table"]) == (1, "BASELINE", "shop", "orders")
    assert content["key"] == {"from": "primary", "columns": [1], "replica_identity": "d"}
    assert content["columns"] == [
        {"n": 1, "name": "id", "type": "integer", "base": "integer", "kind": "b", "notnull": True, "default": None,
         "missing": None, "generated": "", "identity": "", "sent": True, "labels": []},
        {"n": 2, "name": "Odd, name", "type": "character varying(20)", "base": "character varying", "kind": "b",
         "notnull": True, "default": "'x'::character varying", "missing": None, "generated": "", "identity": "",
         "sent": True, "labels": []},
    ]  # fmt: skip


def test_added_column_tells_what_older_rows_read(source: Source) -> None:
    (constant,) = source.run("ALTER TABLE shop.orders ADD credit numeric(12,2) DEFAULT 7.50")
    (volatile,) = source.run("ALTER TABLE shop.orders ADD token float8 DEFAULT random()")
    (stable,) = source.run(
        "SET timezone = 'Asia/Tokyo'; ALTER TABLE shop.orders ADD since timestamptz DEFAULT '2026-01-01 09:00'"
    )
    assert columns(constant)["credit"]["missing"] == [7.5]
    assert (columns(constant)["credit"]["n"], columns(constant)["credit"]["default"]) == (3, "7.50")
    assert constant["rewrite"] == {"type": False, "default": False}
    assert (columns(volatile)["token"]["missing"], volatile["rewrite"]["default"]) == (None, True)
    assert columns(stable)["since"]["missing"] == ["2026-01-01T00:00:00+00:00"]
    assert stable["zone"] == "Asia/Tokyo"


def test_default_in_a_rewriting_command_is_evaluated_unless_volatile(source: Source) -> None:
    (content,) = source.run(
        "ALTER TABLE shop.orders ADD a int DEFAULT 3 + 4, ADD b float8 DEFAULT random(), ADD c text, "
        "ADD d int[] DEFAULT '{1,2}',"
        ' ALTER id TYPE bigint, ADD IF NOT EXISTS "Odd, name" text'
    )
    found = {name: column["missing"] for name, column in columns(content).items()}
    assert found == {"id": None, "Odd, name": ["x"], "a": [7], "b": None, "c": None, "d": [[1, 2]]}
    assert content["rewrite"] == {"type": True, "default": True}
    assert (content["using"], content["computed"]) == (False, [])


@pytest.mark.parametrize(
    "statement",
    [
        'ALTER TABLE shop.orders ALTER "Odd, name" TYPE int USING length("Odd, name")',
        'ALTER TABLE shop.orders ALTER id TYPE bigint, ALTER "Odd, name" SET DATA TYPE int /* a, b */ USING(1)',
        "DO $$ BEGIN ALTER TABLE shop.orders ALTER \"Odd, name\" TYPE int USING length('USING, ; it''s'); END $$",
        "SELECT 1; ALTER TABLE IF EXISTS ONLY shop.orders\n ALTER \"Odd, name\" TYPE int USING 1 -- no;\n; SELECT ';'",
    ],
)
def test_columns_that_an_expression_computes_are_named(source: Source, statement: str) -> None:
    (content,) = source.run('ALTER TABLE shop.orders ALTER "Odd, name" DROP DEFAULT', statement)[1:]
    assert (content["using"], content["computed"], content["rewrite"]["type"]) == (True, [2], True)
    assert "length" not in str(content)


@pytest.mark.parametrize(
    "action",
    [
        'ALTER "Odd, name" TYPE int USING "Odd, name"::integer',
        'ALTER COLUMN "Odd, name" SET DATA TYPE numeric(12, 2) USING ( shop.orders."Odd, name" )::numeric(12,2)',
        'ALTER "Odd, name" TYPE date USING (CAST ("Odd, name" AS date)), ADD CHECK (id > (0))',
        'ALTER "Odd, name" TYPE mood USING "Odd, name"::mood',
        "ALTER id TYPE character varying USING Id::varchar",
        "ALTER id TYPE pg_catalog.text USING (\n id::text /* a */ )",
    ],
)
def test_cast_to_the_new_type_is_no_expression(source: Source, action: str) -> None:
    source.run(
        "TRUNCATE shop.orders",
        "CREATE TYPE mood AS ENUM ('a')",
        'ALTER TABLE shop.orders ALTER "Odd, name" DROP DEFAULT',
    )
    (content,) = source.run(f"ALTER TABLE shop.orders {action}")
    assert (content["using"], content["computed"], content["rewrite"]["type"]) == (False, [], True)


@pytest.mark.parametrize(
    "action",
    [
        'ALTER "Odd, name" TYPE char(3) USING "Odd, name"::char(3)',
        'ALTER "Odd, name" TYPE short USING "Odd, name"::short',
        'ALTER "Odd, name" TYPE timestamp(0) USING "Odd, name"::timestamp(0)',
        'ALTER "Odd, name" TYPE numeric(12, 2) USING "Odd, name"::numeric(12, 1)',
        'ALTER "Odd, name" TYPE numeric(3, -2) USING "Odd, name"::numeric(5, -3)',
        'ALTER "Odd, name" TYPE int USING "Odd, name"::numeric::int',
        'ALTER "Odd, name" TYPE int USING id::int',
        'ALTER "Odd, name" TYPE int USING "Odd, name"::int + 1',
        'ALTER "Odd, name" TYPE int USING - "Odd, name"::int',
        'ALTER "Odd, name" TYPE int USING "Odd, name"("Odd, name")::int',
        'ALTER "Odd, name" TYPE text[] USING ARRAY["Odd, name"]::text[]',
        'ALTER "Odd, name" TYPE int USING CAST("Odd, name" || id AS int)',
    ],
)
def test_cast_that_changes_more_than_the_type_is_an_expression(source: Source, action: str) -> None:
    source.run(
        "TRUNCATE shop.orders",
        "CREATE DOMAIN short AS varchar(2)",
        "CREATE FUNCTION \"Odd, name\"(varchar) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT 7::text'",
        'ALTER TABLE shop.orders ALTER "Odd, name" DROP DEFAULT',
    )
    (content,) = source.run(f"ALTER TABLE shop.orders {action}")
    assert (content["using"], content["computed"]) == (True, [2])


def test_change_without_an_expression_names_no_column(source: Source) -> None:
    *_, plain = source.run(
        "ALTER TABLE shop.orders ADD USING_x int",
        "ALTER TABLE shop.orders ALTER id TYPE numeric(20), ADD CHECK (id > 0) /* USING */",
    )
    assert (plain["using"], plain["computed"], plain["rewrite"]["type"]) == (False, [], True)


def test_expression_that_cannot_be_read_is_neither_true_nor_false(source: Source) -> None:
    (content,) = source.run(
        "CREATE FUNCTION retype() RETURNS int LANGUAGE sql AS 'ALTER TABLE shop.orders ALTER id TYPE bigint; SELECT 1'",
        "SELECT retype()",
    )
    assert (content["using"], content["computed"], types(content)["id"]) == (None, [], "bigint")


def test_renames_keep_numbers(source: Source) -> None:
    found = source.run(
        'ALTER TABLE shop.orders RENAME "Odd, name" TO word',
        "ALTER TABLE shop.orders RENAME TO buys",
        "ALTER SCHEMA shop RENAME TO store",
        "ALTER TABLE store.buys DROP COLUMN word",
        "ALTER TABLE store.buys ADD word text",
    )
    assert [(c["schema"], c["table"]) for c in found] == [
        ("shop", "orders"), ("shop", "buys"), ("store", "buys"), ("store", "buys"), ("store", "buys"),
    ]  # fmt: skip
    assert len({c["oid"] for c in found}) == 1
    numbers = [{name: column["n"] for name, column in columns(c).items()} for c in found]
    assert numbers == [
        {"id": 1, "word": 2},
        {"id": 1, "word": 2},
        {"id": 1, "word": 2},
        {"id": 1},
        {"id": 1, "word": 3},
    ]


def test_keys(source: Source) -> None:
    found = source.run(
        "ALTER TABLE shop.orders ADD region text NOT NULL DEFAULT 'eu'",
        "ALTER TABLE shop.orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (region, id)",
        "ALTER TABLE shop.orders DROP CONSTRAINT orders_pkey",
        "CREATE UNIQUE INDEX by_id ON shop.orders (id) INCLUDE (region)",
        "ALTER TABLE shop.orders REPLICA IDENTITY USING INDEX by_id",
        "ALTER TABLE shop.orders REPLICA IDENTITY FULL",
        "ALTER TABLE shop.orders REPLICA IDENTITY NOTHING",
    )
    assert [(c["key"]["from"], c["key"]["columns"], c["key"]["replica_identity"]) for c in found] == [
        ("primary", [1], "d"), ("primary", [3, 1], "d"), ("nothing", [], "d"), ("index", [1], "i"), ("full", [], "f"),
        ("nothing", [], "n"),
    ]  # fmt: skip


def test_created_and_dropped_tables(source: Source) -> None:
    created, copied = source.run(
        "CREATE TABLE shop.items (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, "
        "d int GENERATED ALWAYS AS (n * 2) STORED)",
        "CREATE TABLE shop.copied AS SELECT * FROM shop.items",
        "CREATE TABLE other.unpublished (id int)",
        "CREATE TEMP TABLE passing (id int)",
        "ALTER TABLE other.unpublished ADD n int",
        "DROP TABLE passing",
    )
    assert (created["tag"], copied["tag"]) == ("CREATE TABLE", "CREATE TABLE AS")
    assert {name: (c["generated"], c["identity"], c["default"], c["sent"]) for name, c in columns(created).items()} == {
        "id": ("", "a", None, True), "n": ("", "", None, True), "d": ("s", "", "(n * 2)", False),
    }  # fmt: skip
    assert copied["key"] == {"from": "nothing", "columns": [], "replica_identity": "d"}
    found = source.run("DROP TABLE shop.items", "DROP SCHEMA shop CASCADE")
    assert {c["table"]: (c["tag"], c["schema"], c["columns"]) for c in found} == dict.fromkeys(
        ("items", "orders", "copied"), ("DROP TABLE", "shop", [])
    )
    assert (len(found), found[0]["oid"]) == (3, created["oid"])


def test_table_that_is_created_again_has_another_oid(source: Source) -> None:
    (before,) = source.run("ALTER TABLE shop.orders ADD a int")
    dropped, created = source.run("DROP TABLE shop.orders", "CREATE TABLE shop.orders (id int PRIMARY KEY)")
    assert dropped["oid"] == before["oid"] != created["oid"]


def test_partitions_are_told_with_their_table(source: Source) -> None:
    source.run("CREATE TABLE shop.sales (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)")
    (part,) = source.run(
        "CREATE TABLE shop.sales_a PARTITION OF shop.sales FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')"
    )
    source.run("INSERT INTO shop.sales VALUES (1, '2026-02-02')")
    found = source.run("ALTER TABLE shop.sales ADD n int DEFAULT 5")
    told = {c["table"]: c for c in found}
    assert "sales_a" in told, "partitions are published under their own names"
    assert told["sales_a"]["root"] == part["root"] != told["sales_a"]["oid"]
    assert columns(told["sales_a"])["n"]["missing"] == [5]
    retyped = source.run("ALTER TABLE shop.sales ALTER n TYPE bigint USING n * 2")
    assert [(c["using"], c["computed"]) for c in retyped if c["table"] == "sales_a"] == [(True, [3])]
    (detached,) = [
        c for c in source.run("ALTER TABLE shop.sales DETACH PARTITION shop.sales_a") if c["table"] == "sales_a"
    ]
    assert detached["root"] is None
    source.run("ALTER PUBLICATION published SET (publish_via_partition_root = true)")
    source.run("ALTER TABLE shop.sales ATTACH PARTITION shop.sales_a FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')")
    (root,) = source.run("ALTER TABLE shop.sales ADD m int DEFAULT 6")
    assert (root["table"], root["root"], columns(root)["m"]["missing"]) == ("sales", None, [6])


def test_types_that_columns_use(source: Source) -> None:
    source.run("CREATE TYPE mood AS ENUM ('on', 'off')", "CREATE DOMAIN feeling AS mood DEFAULT 'off'")
    (added,) = source.run("ALTER TABLE shop.orders ADD m mood[], ADD f feeling")
    found = columns(added)
    assert (found["m"]["kind"], found["m"]["type"], found["m"]["labels"]) == ("b", "public.mood[]", [])
    assert (found["f"]["kind"], found["f"]["type"], found["f"]["base"]) == ("d", "public.feeling", "public.mood")
    assert (found["f"]["missing"], found["f"]["default"]) == (["off"], "'off'::public.mood")
    labels = found["f"]["labels"]
    assert [label for _, label in labels] == ["on", "off"]
    for statement in ("ALTER TYPE mood RENAME VALUE 'on' TO 'bright'", "ALTER TYPE mood ADD VALUE 'dim' BEFORE 'off'"):
        (renamed,) = source.run(statement)
    known = dict(labels)
    assert [(known.get(oid), label) for oid, label in columns(renamed)["f"]["labels"]] == [
        ("on", "bright"), (None, "dim"), ("off", "off"),
    ]  # fmt: skip
    (strict,) = source.run("ALTER DOMAIN feeling SET DEFAULT 'dim'")
    assert columns(strict)["f"]["default"] == "'dim'::public.mood"
    (moved,) = source.run("ALTER TYPE mood RENAME TO temper")
    assert types(moved)["m"] == "public.temper[]"
    (dropped,) = source.run("DROP DOMAIN feeling CASCADE")
    assert (dropped["tag"], [*columns(dropped)]) == ("DROP DOMAIN", ["id", "Odd, name", "m"])


def test_generated_column_with_another_expression_is_computed(source: Source) -> None:
    source.run("ALTER TABLE shop.orders ADD double int GENERATED ALWAYS AS (id * 2) STORED")
    version = source.connection.info.server_version
    if version < 170000:
        with pytest.raises(psycopg.errors.SyntaxError):
            source.run("ALTER TABLE shop.orders ALTER double SET EXPRESSION AS (id * 3)")
        return
    (content,) = source.run("ALTER TABLE shop.orders ALTER double SET EXPRESSION AS (id * 3)")
    assert (content["using"], content["computed"]) == (True, [3])


def test_rolled_back_commands_send_nothing(source: Source) -> None:
    assert source.run("BEGIN", "ALTER TABLE shop.orders ADD a int", "ROLLBACK") == []
    with pytest.raises(psycopg.errors.InvalidTextRepresentation):
        source.run(
            'ALTER TABLE shop.orders ALTER "Odd, name" DROP DEFAULT, ALTER "Odd, name" TYPE int USING "Odd, name"::int'
        )
    (content,) = source.run(
        "BEGIN", "SAVEPOINT s", "ALTER TABLE shop.orders ADD a int", "ROLLBACK TO s",
        "ALTER TABLE shop.orders ADD b int", "COMMIT",
    )  # fmt: skip
    assert (types(content), content["rewrite"]) == (
        {"id": "integer", "Odd, name": "character varying(20)", "b": "integer"},
        {"type": False, "default": False},
    )


def test_messages_stand_between_the_rows_of_their_transaction(source: Source) -> None:
    with source.connection.transaction():
        for statement in (
            "INSERT INTO shop.orders VALUES (3)", "ALTER TABLE shop.orders ADD a int",
            "INSERT INTO shop.orders VALUES (4)", "ALTER TABLE shop.orders DROP COLUMN a",
            "DELETE FROM shop.orders WHERE id = 3",
        ):  # fmt: skip
            source.connection.execute(statement.encode())
    changes = [(lsn, kind) for kind, lsn, _ in source.changes() if kind in "IDM"]
    assert [kind for _, kind in changes] == ["I", "M", "I", "M", "D"]
    assert all(message <= event for (message, _), (event, _) in zip(changes[1::2], changes[2::2], strict=True))


def test_message_of_a_savepoint_stands_at_or_below_the_change_that_follows(source: Source) -> None:
    """Postgres then sends a message after the change that follows it, at the same LSN."""
    with source.connection.transaction():
        source.connection.execute("INSERT INTO shop.orders VALUES (3)")
        with source.connection.transaction():
            source.connection.execute("ALTER TABLE shop.orders ADD a int")
        source.connection.execute("INSERT INTO shop.orders VALUES (4)")
    changes = [(lsn, kind) for kind, lsn, _ in source.changes() if kind in "IM"]
    assert [kind for _, kind in sorted(changes, key=lambda change: (change[0], change[1] != "M"))] == ["I", "M", "I"]


def test_failure_is_a_message_and_fails_no_command(source: Source) -> None:
    (content,) = source.run(
        "ALTER FUNCTION ingest_ddl.key(oid) RENAME TO gone",
        "ALTER TABLE shop.orders ADD a int",
    )
    assert (content["table"], content["error"]) == ("orders", "42883")
    assert any("shop.orders was not sent" in warning for warning in source.warnings)
    (healed,) = source.run("ALTER FUNCTION ingest_ddl.gone(oid) RENAME TO key", "SELECT ingest_ddl.send_definitions()")
    assert [*columns(healed)] == ["id", "Odd, name", "a"]


def test_transaction_with_an_older_snapshot_says_that_it_cannot_tell(source: Source) -> None:
    with source.connect() as older:
        older.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        older.execute("SELECT count(*) FROM pg_class")
        source.run('ALTER TABLE shop.orders RENAME "Odd, name" TO word')
        older.execute("ALTER TABLE shop.orders ADD b int")
        older.execute("COMMIT")
    (content,) = source.run()
    assert (content["table"], content["error"]) == ("orders", "P0001")


def test_owner_without_other_rights_may_change_a_table(source: Source) -> None:
    (content,) = source.run(
        f"CREATE ROLE owner_{source.connection.info.dbname}",
        f"GRANT ALL ON SCHEMA shop TO owner_{source.connection.info.dbname}",
        f"ALTER TABLE shop.orders OWNER TO owner_{source.connection.info.dbname}",
        f"SET ROLE owner_{source.connection.info.dbname}",
        "ALTER TABLE shop.orders ADD a int DEFAULT 1, ALTER id TYPE bigint",
        "RESET ROLE",
    )[-1:]
    assert columns(content)["a"]["missing"] == [1]


def test_search_path_of_the_session_changes_nothing(source: Source) -> None:
    (content,) = source.run(
        "CREATE TYPE shop.mood AS ENUM ('on')",
        "CREATE FUNCTION shop.array_to_json(anyarray) RETURNS json LANGUAGE sql AS $$SELECT '[\"spoofed\"]'::json$$",
        "SET search_path = shop, pg_catalog",
        "ALTER TABLE orders ADD m mood DEFAULT 'on'",
        "RESET search_path",
    )
    assert (columns(content)["m"]["type"], columns(content)["m"]["missing"]) == ("shop.mood", ["on"])


def test_newly_published_table_is_told(source: Source) -> None:
    (content,) = source.run("CREATE TABLE other.late (id int)", "CREATE PUBLICATION more FOR TABLE other.late")
    assert (content["table"], content["tag"]) == ("late", "CREATE PUBLICATION")


def test_columns_that_no_publication_sends_are_named(source: Source) -> None:
    (content,) = source.run(
        "CREATE TABLE other.late (id int PRIMARY KEY, secret text)",
        "CREATE PUBLICATION more FOR TABLE other.late (id)",
    )
    assert {name: column["sent"] for name, column in columns(content).items()} == {"id": True, "secret": False}


def test_command_does_not_wait_for_changes_of_other_tables(source: Source) -> None:
    source.run("CREATE TABLE shop.items (id int PRIMARY KEY)", "SET lock_timeout = '5s'")
    with source.connect() as other:
        other.execute("BEGIN")
        other.execute("ALTER TABLE shop.items ADD a int")
        source.run("ALTER TABLE shop.orders ADD a int", "CREATE PUBLICATION more FOR TABLE shop.orders")
        other.execute("COMMIT")
    (content,) = source.run()
    assert (content["table"], [*columns(content)]) == ("items", ["id", "a"])


@pytest.mark.long
def test_definitions_wait_for_a_change_in_progress(source: Source) -> None:
    """Otherwise an older definition would stand above the newer one."""
    source.run("SET lock_timeout = '300ms'")
    with source.connect() as other:
        other.execute("BEGIN")
        other.execute("ALTER TABLE shop.orders ADD a int")
        (content,) = source.run("SELECT ingest_ddl.send_definitions()")
        assert content["error"] == "55P03", "lock not available"
        other.execute("COMMIT")
    assert [[*columns(content)] for content in source.run("SELECT ingest_ddl.send_definitions()")] == [
        ["id", "Odd, name", "a"],
        ["id", "Odd, name", "a"],
    ]
