"""Event triggers of Postgres that write each change of a table's definition into the log.

The content of a message, JSON in UTF-8, is the table's whole definition after a command:

| field | value |
|---|---|
| `v`, `tag` | 1; the command, `DROP TABLE` for each table that is gone, `BASELINE` for a definition as it stood |
| `oid`, `schema`, `table` | the relation |
| `root` | the oid of a partition's partitioned table, else null |
| `columns` | by attribute number, see below |
| `key` | `columns`: attribute numbers; `from`: `primary`, `index` of the replica identity, else `full` or |
| | `nothing`. `replica_identity`: d, i, f or n, as in `pg_class` |
| `rewrite` | `type`, `default`: true if the command rewrote the table for a type, or for a default or expression |
| `using` | true if an expression computed values (TYPE … USING, but for a plain cast of the column to its new type, |
| | SET EXPRESSION); null if that can't be told |
| `computed` | the attribute numbers of these columns |
| `zone` | the session's time zone |
| `error` | the SQLSTATE of a failure; then only `v` and `tag` are certain |

Each of `columns` has `n` (attribute number), `name`, `type` and `base` (`format_type` with and without modifiers; of a
domain the `base` is the type below it), `kind` (`pg_type.typtype`: b, e, d, c, r, m), `notnull`, `default` as SQL,
`generated`, `identity`, `sent` (a publication sends the column), `labels` of an enum as pairs of oid and label, and
`missing`: an array of the one value that rows from before the column read, null if the catalog holds none.
"""

from __future__ import annotations

from pathlib import Path


def ddl_trigger() -> str:
    """Returns the SQL that installs the triggers and then writes the definitions of all published tables. It may be run
    again."""
    return Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
