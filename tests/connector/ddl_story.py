"""Statements that change the tables of a source between changes of rows, as steps of one or two sessions."""

from __future__ import annotations

SCHEMA = "ddl"

BEFORE = """
    CREATE SCHEMA ddl;
    CREATE TYPE ddl.mood AS ENUM ('on', 'off');
    CREATE DOMAIN ddl.percent AS int DEFAULT 50 CHECK (VALUE <= 100);
    CREATE TABLE ddl.orders (id int PRIMARY KEY, word text DEFAULT 'none', total numeric(10, 2));
    CREATE TABLE ddl.items (id int PRIMARY KEY, n int);
    CREATE TABLE ddl.logs (id int PRIMARY KEY, line text);
    CREATE TABLE ddl.bags (a int, b int);
    CREATE TABLE ddl.sales (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
    CREATE TABLE ddl.sales_26 PARTITION OF ddl.sales FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
    ALTER TABLE ddl.bags REPLICA IDENTITY FULL;
    INSERT INTO ddl.orders VALUES (1, '7', 1.5);
    INSERT INTO ddl.items VALUES (1, 1);
"""
"""What is there before the connector is."""

COLUMNS = (
    "INSERT INTO ddl.orders VALUES (2, '8', 2.5)",
    "ALTER TABLE ddl.orders ADD note text",
    "UPDATE ddl.orders SET note = 'n' WHERE id = 2",
    "ALTER TABLE ddl.orders ADD level int DEFAULT 5",
    "ALTER TABLE ddl.orders ADD token float8 DEFAULT random()",
    "ALTER TABLE ddl.orders ADD since timestamptz DEFAULT '2026-01-01 00:00+00' NOT NULL",
    "INSERT INTO ddl.orders (id, word, token) VALUES (3, '9', 1)",
    "ALTER TABLE ddl.orders ALTER level TYPE bigint",
    "ALTER TABLE ddl.orders ALTER level TYPE numeric(12, 2)",
    "ALTER TABLE ddl.orders ALTER word DROP DEFAULT, ALTER word TYPE int USING length(word)",
    "UPDATE ddl.orders SET token = 2 WHERE id = 3",
    "ALTER TABLE ddl.orders RENAME note TO remark",
    "INSERT INTO ddl.orders (id, token, remark) VALUES (4, 3, 'r')",
    "ALTER TABLE ddl.orders DROP COLUMN remark",
    "ALTER TABLE ddl.orders ADD remark text, ALTER total SET DEFAULT 7, ALTER word SET DEFAULT 1",
    "INSERT INTO ddl.orders (id, token) VALUES (5, 4)",
    "ALTER TABLE ddl.orders ADD share ddl.percent, ADD feeling ddl.mood DEFAULT 'on'",
    "INSERT INTO ddl.orders (id, token) VALUES (6, 5)",
    "ALTER TYPE ddl.mood RENAME VALUE 'on' TO 'bright'",
    "ALTER TYPE ddl.mood ADD VALUE 'dim' BEFORE 'off'",
    "UPDATE ddl.orders SET token = 6 WHERE id = 6",
    "ALTER TABLE ddl.orders ADD twice int GENERATED ALWAYS AS (id * 2) STORED, "
    "ADD serial int GENERATED ALWAYS AS IDENTITY",
    "INSERT INTO ddl.orders (id, token) VALUES (7, 7)",
)
KEYS = (
    "ALTER TABLE ddl.orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, serial)",
    "UPDATE ddl.orders SET token = 8 WHERE id = 7",
    "ALTER TABLE ddl.orders REPLICA IDENTITY FULL",
    "UPDATE ddl.orders SET token = 9 WHERE id = 7",
    "ALTER TABLE ddl.orders DROP CONSTRAINT orders_pkey",
    "DELETE FROM ddl.orders WHERE id = 7",
    "CREATE UNIQUE INDEX by_serial ON ddl.orders (serial)",
    "ALTER TABLE ddl.orders REPLICA IDENTITY USING INDEX by_serial",
    "INSERT INTO ddl.orders (id, token) VALUES (8, 8)",
    "DELETE FROM ddl.orders WHERE id = 8",
    "INSERT INTO ddl.bags VALUES (1, 2), (1, 2)",
    "ALTER TABLE ddl.bags DROP COLUMN b",
    "DELETE FROM ddl.bags",
)
TABLES = (
    "INSERT INTO ddl.sales VALUES (1, '2026-05-05')",
    "ALTER TABLE ddl.sales ADD n int DEFAULT 3",
    "INSERT INTO ddl.sales VALUES (2, '2026-05-06')",
    "ALTER TABLE ddl.orders RENAME TO buys",
    "INSERT INTO ddl.buys (id, token) VALUES (9, 9)",
    "TRUNCATE ddl.bags",
    "DROP TABLE ddl.logs",
    "CREATE TABLE ddl.logs (id int PRIMARY KEY, line int)",
    "ALTER PUBLICATION {publication} ADD TABLE ddl.logs",
    "INSERT INTO ddl.logs VALUES (1, 1)",
)
IN_ONE_TRANSACTION = (
    "BEGIN",
    "INSERT INTO ddl.items VALUES (2, 2)",
    "ALTER TABLE ddl.items ADD a int DEFAULT 4",
    "INSERT INTO ddl.items VALUES (3, 3)",
    "ALTER TABLE ddl.items DROP COLUMN n",
    "DELETE FROM ddl.items WHERE id = 2",
    "COMMIT",
    "BEGIN",
    "ALTER TABLE ddl.items ADD never int",
    "INSERT INTO ddl.items VALUES (4, 4)",
    "ROLLBACK",
)
TWO_SESSIONS = (
    ("one", "BEGIN"),
    ("one", "INSERT INTO ddl.items VALUES (5, 5)"),
    ("two", "BEGIN"),
    ("two", "INSERT INTO ddl.logs VALUES (2, 'a')"),
    ("two", "ALTER TABLE ddl.logs ADD b int DEFAULT 6"),
    ("one", "ALTER TABLE ddl.items ADD c int DEFAULT 7"),
    ("two", "INSERT INTO ddl.logs VALUES (3, 'c')"),
    ("two", "COMMIT"),
    ("one", "INSERT INTO ddl.items VALUES (6, 6)"),
    ("one", "COMMIT"),
)
LAST = "INSERT INTO ddl.items (id) VALUES (99)"
