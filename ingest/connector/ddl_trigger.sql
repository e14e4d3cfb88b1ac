-- Event triggers that write each change of a published table's definition into the server's log, as a message of the
-- topic PREFIX.message. From these messages ingest knows the position at which a column, a type or a key changed.
--
-- Run it in the database that the connector reads, as a superuser (Amazon RDS: rds_superuser; Cloud SQL:
-- cloudsqlsuperuser; Azure: azure_pg_admin), once the connector is running: messages from before its slot never arrive.
--     psql "$DSN" -v ON_ERROR_STOP=1 -f ddl-trigger.sql
-- It may be run again at any time. It needs Postgres 15 or later, changes no table and needs no extension.
--
-- A failure of these functions never fails the command that changes a table: it is a WARNING, and a message with
-- "error". Then run: SELECT ingest_ddl.send_definitions();
-- To remove it: DROP SCHEMA ingest_ddl CASCADE;

BEGIN;
SET LOCAL client_min_messages = warning;
CREATE SCHEMA IF NOT EXISTS ingest_ddl;
DROP EVENT TRIGGER IF EXISTS ingest_ddl_command_end;
DROP EVENT TRIGGER IF EXISTS ingest_ddl_sql_drop;
DROP EVENT TRIGGER IF EXISTS ingest_ddl_table_rewrite;

-- Returns the text of the command that fired a trigger; if PL/pgSQL ran it, that of its own statement. Null if it can't
-- be told. `context`: PG_CONTEXT of the trigger's function. The text never leaves the server.
CREATE OR REPLACE FUNCTION ingest_ddl.statement(context text) RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    SELECT CASE WHEN position(E'\n' IN context) = 0 THEN current_query()
        WHEN split_part(context, E'\n', 2) LIKE 'SQL statement "%' THEN
            split_part(substr(context, position('"' IN context) + 1), E'"\nPL/pgSQL function ', 1) END
$function$;

-- Returns a query on one line without comments and literals, with quoted identifiers as "hexadecimal", modifiers of
-- types as [12/2], CAST(x AS y) as x::y, and ~ for what else stands in parentheses. Null if that takes more than its
-- tokens: dollar quotes, U& identifiers, nested comments.
CREATE OR REPLACE FUNCTION ingest_ddl.outline(query text) RETURNS text LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    token_pattern CONSTANT text :=
        $re$(--[^\n]*|/\*(?:[^*]|\*+[^*/])*\*+/|[eE]'(?:[^'\\]|''|\\.)*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\w+|.)$re$;
    longest CONSTANT integer := 100000;
    outline text;
    shorter text;
BEGIN
    IF length(query) > longest OR query ~ '\$\w*\$' OR query ~ '/\*([^*]|\*+[^*/])*/\*' OR query ~* 'u&"'
            OR current_setting('standard_conforming_strings') <> 'on' THEN
        RETURN NULL;
    END IF;
    SELECT string_agg(
        CASE WHEN token ~ '^(--|/\*)' OR token ~ '''$' THEN ' '
            WHEN token ~ '^"' THEN
                '"' || encode(convert_to(replace(substr(token, 2, length(token) - 2), '""', '"'), 'UTF8'), 'hex') || '"'
            ELSE token END, '' ORDER BY number) INTO shorter
    FROM regexp_matches(query, token_pattern, 'g') WITH ORDINALITY AS matched(groups, number), unnest(groups) AS token;
    shorter := regexp_replace(shorter, '\(\s*(\d+)\s*\)', ' [\1]', 'g');
    shorter := regexp_replace(shorter, '\(\s*(\d+)\s*,\s*(\d+)\s*\)', ' [\1/\2]', 'g');
    WHILE shorter IS DISTINCT FROM outline LOOP
        outline := shorter;
        shorter := regexp_replace(shorter, '\mCAST\s*\(\s*([\w."]+)\s+AS\s+([^()]+)\)', '\1::\2', 'gi');
        shorter := regexp_replace(shorter, '(\mUSING)\s*\(\s*([^()]*[^()\s])\s*\)', '\1 \2', 'gi');
        CONTINUE WHEN shorter <> outline;
        shorter := regexp_replace(outline, '\([^()]*\)', ' ~ ', 'g');
    END LOOP;
    RETURN regexp_replace(regexp_replace(outline, '\s+', ' ', 'g'), ' ?\. ?', '.', 'g');
END
$function$;

-- Returns the last identifier of a name in an outline.
CREATE OR REPLACE FUNCTION ingest_ddl.identifier(name text) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $function$
    SELECT CASE WHEN last LIKE '"%' THEN convert_from(decode(trim(BOTH '"' FROM last), 'hex'), 'UTF8')
        ELSE lower(last COLLATE "C") END
    FROM substring(rtrim(name, '*') FROM '[^.]+$') AS last
$function$;

-- Returns the name of a type in an outline, in one spelling for all of its synonyms.
CREATE OR REPLACE FUNCTION ingest_ddl.type_name(outline text) RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $function$
    SELECT COALESCE('{
        "int": "integer", "int4": "integer", "int2": "smallint", "int8": "bigint", "bool": "boolean",
        "decimal": "numeric", "float8": "double precision", "float4": "real", "character varying": "varchar",
        "timestamp without time zone": "timestamp", "timestamp with time zone": "timestamptz",
        "time without time zone": "time"
    }'::json ->> word, word) || COALESCE(replace(substring(name FROM '\[.*'), ' ', ''), '')
    FROM replace(lower(outline COLLATE "C"), 'pg_catalog.', '') AS name, trim(regexp_replace(name, '\[.*', '')) AS word
$function$;

-- Returns true if an explicit cast to a type does what an assignment does: it shortens no text and rounds no time.
CREATE OR REPLACE FUNCTION ingest_ddl.is_plain(type oid, modifier integer) RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    SELECT e.typtype = 'e' OR (e.typnamespace = 'pg_catalog'::regnamespace AND (
        e.typname = 'numeric' OR (modifier = -1 AND e.typname = ANY (
            '{int2,int4,int8,float4,float8,bool,text,varchar,date,timestamp,timestamptz,time,uuid,json,jsonb}'
        ))
    ))
    FROM pg_type t JOIN pg_type e ON e.oid = CASE t.typcategory WHEN 'A' THEN t.typelem ELSE t.oid END
    WHERE t.oid = type
$function$;

-- Returns the actions of the ALTER TABLE commands of a query: `add` of a column, `compute` of a column's values by an
-- expression, `cast` of them to the new type, `partition` for one that is attached or detached, else `other`. No rows
-- if the query can't be read.
CREATE OR REPLACE FUNCTION ingest_ddl.actions(query text) RETURNS TABLE (relation text, action text, name text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $function$
    SELECT ingest_ddl.identifier(command[1]),
        CASE WHEN ingest_ddl.identifier(cast_to[3]) = ingest_ddl.identifier(cast_to[1])
                AND ingest_ddl.type_name(cast_to[4]) = ingest_ddl.type_name(cast_to[2]) THEN 'cast'
            WHEN computed IS NOT NULL THEN 'compute' WHEN partition IS NOT NULL THEN 'partition'
            WHEN added[1] !~* '^(constraint|check|unique|primary|foreign|exclude)$' THEN 'add' ELSE 'other' END,
        ingest_ddl.identifier((COALESCE(computed, partition, added))[1])
    FROM string_to_table(ingest_ddl.outline(query), ';') AS statement,
        regexp_match(trim(statement), '^ALTER TABLE (?:IF EXISTS )?(?:ONLY )?(\S+) (?:\* )?(.*)$', 'i') AS command,
        string_to_table(command[2], ',') AS part,
        trim(part) AS act,
        COALESCE(
            regexp_match(act, '^ALTER (?:COLUMN )?(\S+) (?:SET DATA )?TYPE .* USING(?: |$)', 'i'),
            regexp_match(act, '^ALTER (?:COLUMN )?(\S+) SET EXPRESSION', 'i')
        ) AS computed,
        regexp_match(
            act, '^ALTER (?:COLUMN )?(\S+) (?:SET DATA )?TYPE ([^~:]+) USING '
            '((?:[\w"]+\.)*(?:"[0-9a-f]+"|\w+))::([^~:]+)$', 'i'
        ) AS cast_to,
        regexp_match(act, '^(?:ATTACH|DETACH) PARTITION (\S+)', 'i') AS partition,
        regexp_match(act, '^ADD (?:COLUMN )?(?:IF NOT EXISTS )?(\S+) ', 'i') AS added
    WHERE command IS NOT NULL
$function$;

-- Returns an array as JSON, in forms that no setting of the session changes.
CREATE OR REPLACE FUNCTION ingest_ddl.as_json(elements anyarray) RETURNS json LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' SET datestyle = 'ISO, YMD' SET intervalstyle = 'iso_8601'
SET bytea_output = 'hex' SET extra_float_digits = 1 SET lc_monetary = 'C' AS $function$
    SELECT array_to_json(elements)
$function$;

-- Returns the type below a domain; other types as they are.
CREATE OR REPLACE FUNCTION ingest_ddl.base_type(type oid) RETURNS oid LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    WITH RECURSIVE base(id, next) AS (
        SELECT t.oid, t.typbasetype FROM pg_type t WHERE t.oid = type
        UNION ALL SELECT t.oid, t.typbasetype FROM base JOIN pg_type t ON t.oid = base.next
    )
    SELECT base.id FROM base WHERE base.next = 0
$function$;

-- Returns a table and its partitions. Unlike pg_partition_tree it locks none.
CREATE OR REPLACE FUNCTION ingest_ddl.partitions(relation oid) RETURNS SETOF oid LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    WITH RECURSIVE tree(id) AS (
        SELECT relation UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.id
    )
    SELECT tree.id FROM tree
$function$;

-- Returns the publications that send a table's changes under its own name. `columns`: null for all. Unlike
-- pg_publication_tables it locks no table, which would wait for changes of all published ones.
CREATE OR REPLACE FUNCTION ingest_ddl.publications(relation oid)
RETURNS TABLE (id oid, columns name[], sends_generated boolean) LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    WITH RECURSIVE family(id, depth) AS (
        SELECT relation, 0
        UNION SELECT i.inhparent, family.depth + 1 FROM family JOIN pg_class c ON c.oid = family.id AND c.relispartition
            JOIN pg_inherits i ON i.inhrelid = family.id
    ), member AS (
        SELECT p.oid AS publication, family.depth, (
            SELECT array_agg(a.attname) FROM pg_attribute a WHERE a.attrelid = family.id AND a.attnum = ANY (r.prattrs)
        ) AS columns
        FROM family JOIN pg_class c ON c.oid = family.id CROSS JOIN pg_publication p
            LEFT JOIN pg_publication_rel r ON (r.prpubid, r.prrelid) = (p.oid, family.id)
        WHERE p.puballtables OR r.oid IS NOT NULL OR EXISTS (
            SELECT FROM pg_publication_namespace n WHERE (n.pnpubid, n.pnnspid) = (p.oid, c.relnamespace)
        )
    )
    SELECT p.oid, (SELECT m.columns FROM member m WHERE m.publication = p.oid ORDER BY m.depth LIMIT 1),
        to_jsonb(p) ->> 'pubgencols' IS NOT DISTINCT FROM 's'  -- Postgres 18
    FROM pg_publication p JOIN pg_class own ON own.oid = relation
    WHERE own.relkind IN ('r', 'p') AND own.relpersistence = 'p' AND own.oid >= 16384  -- no system catalog
        AND EXISTS (SELECT FROM member m WHERE m.publication = p.oid)
        AND CASE WHEN p.pubviaroot THEN NOT EXISTS (SELECT FROM member m WHERE m.publication = p.oid AND m.depth > 0)
            ELSE own.relkind = 'r' END
$function$;

-- Returns those of these tables that a publication sends under their own names.
CREATE OR REPLACE FUNCTION ingest_ddl.published(relations oid[]) RETURNS SETOF oid LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    SELECT DISTINCT relation FROM unnest(relations) AS relation
    WHERE EXISTS (SELECT FROM ingest_ddl.publications(relation)) ORDER BY relation
$function$;

-- Returns the value that rows from before a column read in it, as a JSON array of one; null if there is none or only
-- the rows hold it. `is_evaluated`: the command that added the column rewrote the table, so that the catalog lacks the
-- value; a default that is not volatile still gives it. It never reads a row.
CREATE OR REPLACE FUNCTION ingest_ddl.missing(relation oid, number smallint, is_evaluated boolean) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    expression pg_node_tree;
    type text;
    value json;
BEGIN
    -- A partitioned table has no rows: its partitions hold the value.
    SELECT ingest_ddl.as_json(a.attmissingval) INTO value
    FROM pg_attribute own JOIN pg_attribute a ON a.attname = own.attname AND a.attmissingval IS NOT NULL
    WHERE own.attrelid = relation AND own.attnum = number AND NOT a.attisdropped
        AND (a.attrelid = relation OR a.attrelid IN (SELECT ingest_ddl.partitions(relation)))
    ORDER BY a.attrelid <> relation LIMIT 1;
    IF value IS NULL AND is_evaluated THEN
        SELECT COALESCE(d.adbin, t.typdefaultbin), format_type(a.atttypid, a.atttypmod) INTO expression, type
        FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
        WHERE a.attrelid = relation AND a.attnum = number AND a.attgenerated = '' AND a.attidentity = '';
        IF expression IS NOT NULL AND expression::text !~ 'NEXTVALUEEXPR' AND NOT EXISTS (
            SELECT FROM regexp_matches(expression::text, ':(?:op)?funcid (\d+)', 'g') AS called
            JOIN pg_proc p ON p.oid = called[1]::oid WHERE p.provolatile = 'v'
        ) THEN
            EXECUTE format('SELECT ingest_ddl.as_json(ARRAY[(%s)::%s])', pg_get_expr(expression, relation), type)
            INTO value;
        END IF;
    END IF;
    RETURN value;
END
$function$;

-- Returns the columns of a table. `added`: names of those that a command added that rewrote the table.
CREATE OR REPLACE FUNCTION ingest_ddl.columns(relation oid, added text[]) RETURNS json LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    WITH publication AS MATERIALIZED (SELECT * FROM ingest_ddl.publications(relation))
    SELECT COALESCE(json_agg(json_build_object(
        'n', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
        'base', format_type(base.oid, NULL), 'kind', t.typtype, 'notnull', a.attnotnull OR t.typnotnull,
        'default', COALESCE(pg_get_expr(d.adbin, d.adrelid), pg_get_expr(t.typdefaultbin, 0)),
        'missing', ingest_ddl.missing(relation, a.attnum, a.attname = ANY (added)),
        'generated', a.attgenerated, 'identity', a.attidentity,
        'sent', EXISTS (
            SELECT FROM publication p WHERE CASE WHEN p.columns IS NOT NULL THEN a.attname = ANY (p.columns)
                ELSE a.attgenerated = '' OR (a.attgenerated = 's' AND p.sends_generated) END
        ),
        'labels', COALESCE((
            SELECT json_agg(json_build_array(e.oid::bigint, e.enumlabel) ORDER BY e.enumsortorder)
            FROM pg_enum e WHERE e.enumtypid = base.oid
        ), '[]')
    ) ORDER BY a.attnum), '[]')
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
        JOIN pg_type base ON base.oid = ingest_ddl.base_type(a.atttypid)
        LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
    WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
$function$;

-- Returns the key by which Debezium tells a table's rows apart.
CREATE OR REPLACE FUNCTION ingest_ddl.key(relation oid) RETURNS json LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    SELECT json_build_object(
        'from', COALESCE(
            CASE WHEN i.indisprimary THEN 'primary' WHEN i.indisreplident THEN 'index' END,
            CASE c.relreplident WHEN 'f' THEN 'full' ELSE 'nothing' END
        ),
        'columns', COALESCE((
            SELECT json_agg(number ORDER BY place) FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k(number, place)
            WHERE place <= i.indnkeyatts
        ), '[]'),
        'replica_identity', c.relreplident
    )
    FROM pg_class c LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisvalid
        AND (i.indisprimary OR (c.relreplident = 'i' AND i.indisreplident))
    WHERE c.oid = relation ORDER BY i.indisprimary DESC NULLS LAST LIMIT 1
$function$;

-- Raises an exception if the transaction's snapshot shows an older definition than the table has.
CREATE OR REPLACE FUNCTION ingest_ddl.require_visible(relation oid) RETURNS void LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
BEGIN
    IF current_setting('transaction_isolation') = 'read committed' THEN
        RETURN;
    END IF;
    -- These functions read the catalog as it is, unlike a query in a transaction of a higher isolation.
    IF EXISTS (
        SELECT FROM pg_class c WHERE c.oid = relation
        AND has_column_privilege(relation, (c.relnatts + 1)::smallint, 'SELECT') IS NOT NULL
    ) OR EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped
        AND (pg_identify_object('pg_class'::regclass, relation, a.attnum)).identity IS DISTINCT FROM
            (pg_identify_object('pg_class'::regclass, relation, 0)).identity || '.' || quote_ident(a.attname)
    ) THEN
        RAISE EXCEPTION 'another transaction changed the table after this one began';
    END IF;
END
$function$;

-- Returns a table's definition after a command. `rewrites`: reasons of rewrites by oid. `statement`: the command.
CREATE OR REPLACE FUNCTION ingest_ddl.definition(relation oid, tag text, rewrites jsonb, statement text) RETURNS json
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    is_default CONSTANT integer := 2;  -- AT_REWRITE_DEFAULT_VAL
    is_type CONSTANT integer := 4;  -- AT_REWRITE_COLUMN_REWRITE
    reasons integer;
    is_told boolean;
    added text[];
    computed smallint[];
BEGIN
    PERFORM ingest_ddl.require_visible(relation);
    SELECT COALESCE(bit_or(value::integer), 0) & (is_default | is_type) INTO reasons FROM jsonb_each_text(rewrites)
    WHERE key::oid IN (SELECT ingest_ddl.partitions(relation));
    WITH RECURSIVE family(id) AS (
        SELECT relation UNION SELECT i.inhparent FROM family JOIN pg_inherits i ON i.inhrelid = family.id
    ), act AS (
        SELECT a.action, a.name FROM family JOIN pg_class c ON c.oid = family.id
            JOIN ingest_ddl.actions(CASE WHEN reasons <> 0 THEN statement END) a ON a.relation = c.relname
    )
    SELECT count(*) > 0 OR reasons = 0, COALESCE(array_agg(act.name) FILTER (WHERE act.action = 'add'), '{}'),
        COALESCE(array_agg(a.attnum) FILTER (WHERE a.attnum IS NOT NULL), '{}') INTO is_told, added, computed
    FROM act LEFT JOIN pg_attribute a
        ON a.attrelid = relation AND a.attname = act.name AND NOT a.attisdropped AND (
            act.action = 'compute' OR (act.action = 'cast' AND NOT ingest_ddl.is_plain(a.atttypid, a.atttypmod))
        );
    RETURN (
        SELECT json_build_object(
            'v', 1, 'tag', tag, 'oid', relation::bigint, 'schema', n.nspname, 'table', c.relname,
            'root', CASE WHEN c.relispartition THEN pg_partition_root(relation)::oid::bigint END,
            'columns', ingest_ddl.columns(relation, added), 'key', ingest_ddl.key(relation),
            'rewrite', json_build_object('type', reasons & is_type <> 0, 'default', reasons & is_default <> 0),
            'using', CASE WHEN is_told THEN computed <> '{}' END, 'computed', computed,
            'zone', current_setting('TimeZone')
        )
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation
    );
END
$function$;

-- Warns of a failure, and returns the message that says so. `relation`: null for all tables of the command.
CREATE OR REPLACE FUNCTION ingest_ddl.failure(tag text, relation oid, code text) RETURNS json LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    names json := (
        SELECT json_build_object('schema', n.nspname, 'table', c.relname)
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation
    );
BEGIN
    RAISE WARNING 'ingest_ddl: % of table % was not sent (SQLSTATE %)',
        tag, COALESCE(relation::regclass::text, '?'), code
        USING HINT = 'run SELECT ingest_ddl.send_definitions()';
    RETURN json_build_object(
        'v', 1, 'tag', tag, 'oid', relation::bigint, 'schema', names ->> 'schema', 'table', names ->> 'table',
        'error', code
    );
END
$function$;

-- Writes a message into the log, in UTF-8. It becomes visible when the transaction commits.
CREATE OR REPLACE FUNCTION ingest_ddl.emit(content json) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $function$
    SELECT pg_logical_emit_message(true, 'ingest_ddl', convert_to(content::text, 'UTF8'))
$function$;

-- Writes the definition of a table into the log; where that fails, a message that says so. It is written outside of the
-- block that catches errors: that is a subtransaction, whose changes Postgres sends in another order.
CREATE OR REPLACE FUNCTION ingest_ddl.send(relation oid, tag text, rewrites jsonb, statement text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    content json;
BEGIN
    BEGIN
        -- Otherwise a change that commits meanwhile would stand below this older definition.
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS SHARE MODE', relation::regclass);
        content := ingest_ddl.definition(relation, tag, rewrites, statement);
    EXCEPTION WHEN OTHERS THEN
        content := ingest_ddl.failure(tag, relation, SQLSTATE);
    END;
    PERFORM ingest_ddl.emit(content);
END
$function$;

-- Returns the published tables whose definition the present command may have changed.
CREATE OR REPLACE FUNCTION ingest_ddl.changed(statement text) RETURNS SETOF oid LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    WITH RECURSIVE command AS MATERIALIZED (SELECT classid, objid FROM pg_event_trigger_ddl_commands()),
    type(id) AS (
        SELECT objid FROM command WHERE classid = 'pg_type'::regclass
        UNION SELECT c.reltype FROM command JOIN pg_class c ON c.oid = objid AND c.relkind = 'c'
        WHERE classid = 'pg_class'::regclass
        UNION SELECT used.id FROM type, LATERAL (
            SELECT t.oid FROM pg_type t WHERE t.typbasetype = type.id OR (t.typelem = type.id AND t.typcategory = 'A')
            UNION ALL SELECT r.rngtypid FROM pg_range r WHERE r.rngsubtype = type.id
            UNION ALL SELECT c.reltype FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'c'
            WHERE a.atttypid = type.id
        ) AS used(id)
    ),
    relation(id) AS (
        SELECT objid FROM command WHERE classid = 'pg_class'::regclass
        UNION SELECT a.attrelid FROM type JOIN pg_attribute a ON a.atttypid = type.id AND NOT a.attisdropped
        UNION SELECT c.oid FROM command JOIN pg_class c ON c.relnamespace = objid
        WHERE classid = 'pg_namespace'::regclass
        UNION SELECT r.prrelid FROM command JOIN pg_publication_rel r ON r.oid = objid
        WHERE classid = 'pg_publication_rel'::regclass
        UNION SELECT c.oid FROM command JOIN pg_publication_namespace n ON n.oid = objid
            JOIN pg_class c ON c.relnamespace = n.pnnspid
        WHERE classid = 'pg_publication_namespace'::regclass
        UNION SELECT c.oid FROM pg_class c
        WHERE (SELECT true FROM command WHERE classid = 'pg_publication'::regclass LIMIT 1)
            AND EXISTS (SELECT FROM ingest_ddl.publications(c.oid) p JOIN command ON objid = p.id)
        UNION SELECT c.oid FROM ingest_ddl.actions(statement) a JOIN pg_class c ON c.relname = a.name
        WHERE a.action = 'partition'
        UNION SELECT i.inhrelid FROM relation JOIN pg_inherits i ON i.inhparent = relation.id
    )
    SELECT ingest_ddl.published(array_agg(relation.id)) FROM relation
$function$;

CREATE OR REPLACE FUNCTION ingest_ddl.on_command_end() RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    context text;
    statement text;
    rewrites jsonb;
    relation oid;
    relations oid[];
    failure json;
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    BEGIN
        statement := ingest_ddl.statement(context);
        rewrites := COALESCE(NULLIF(current_setting('ingest_ddl.rewrites', true), ''), '{}')::jsonb;
        PERFORM set_config('ingest_ddl.rewrites', '', true);
        relations := ARRAY(SELECT ingest_ddl.changed(statement));
    EXCEPTION WHEN OTHERS THEN
        failure := ingest_ddl.failure(TG_TAG, NULL, SQLSTATE);
    END;
    PERFORM ingest_ddl.emit(failure) WHERE failure IS NOT NULL;
    FOREACH relation IN ARRAY COALESCE(relations, '{}') LOOP
        PERFORM ingest_ddl.send(relation, TG_TAG, rewrites, statement);
    END LOOP;
END
$function$;

-- Returns the message of a table that is gone.
CREATE OR REPLACE FUNCTION ingest_ddl.dropped(relation oid, names text[]) RETURNS json LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $function$
    SELECT json_build_object(
        'v', 1, 'tag', 'DROP TABLE', 'oid', relation::bigint, 'schema', names[1], 'table', names[2], 'root', NULL,
        'columns', '[]'::json,
        'key', json_build_object('from', 'nothing', 'columns', '[]'::json, 'replica_identity', 'n'),
        'rewrite', json_build_object('type', false, 'default', false), 'using', false, 'computed', '[]'::json,
        'zone', current_setting('TimeZone')
    )
$function$;

-- Sends tables that are gone, and tables that lost a column or a default because something else is gone.
CREATE OR REPLACE FUNCTION ingest_ddl.on_sql_drop() RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    content json;
    contents json[];
    relation oid;
    relations oid[];
BEGIN
    BEGIN
        contents := ARRAY(
            SELECT ingest_ddl.dropped(objid, address_names) FROM pg_event_trigger_dropped_objects()
            WHERE object_type = 'table' AND NOT is_temporary
        );
        relations := ARRAY(SELECT ingest_ddl.published(ARRAY(
            SELECT to_regclass(format('%I.%I', address_names[1], address_names[2]))::oid
            FROM pg_event_trigger_dropped_objects()
            WHERE object_type IN ('table column', 'default value') AND TG_TAG <> 'ALTER TABLE'
        )));
    EXCEPTION WHEN OTHERS THEN
        contents := ARRAY[ingest_ddl.failure(TG_TAG, NULL, SQLSTATE)];
    END;
    FOREACH content IN ARRAY COALESCE(contents, '{}') LOOP
        PERFORM ingest_ddl.emit(content);
    END LOOP;
    FOREACH relation IN ARRAY COALESCE(relations, '{}') LOOP
        PERFORM ingest_ddl.send(relation, TG_TAG, '{}', NULL);
    END LOOP;
END
$function$;

-- Remembers why the present command rewrites a table, until the command ends.
CREATE OR REPLACE FUNCTION ingest_ddl.on_table_rewrite() RETURNS event_trigger LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    name CONSTANT text := 'ingest_ddl.rewrites';
    known jsonb := COALESCE(NULLIF(current_setting(name, true), ''), '{}')::jsonb;
BEGIN
    known := known || jsonb_build_object(
        pg_event_trigger_table_rewrite_oid()::text, pg_event_trigger_table_rewrite_reason()
    );
    PERFORM set_config(name, known::text, true);
END
$function$;

-- Writes the definitions of all published tables into the log.
CREATE OR REPLACE FUNCTION ingest_ddl.send_definitions() RETURNS bigint LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    relation oid;
    sent bigint := 0;
BEGIN
    FOR relation IN SELECT ingest_ddl.published(ARRAY(SELECT oid FROM pg_class)) LOOP
        PERFORM ingest_ddl.send(relation, 'BASELINE', '{}', NULL);
        sent := sent + 1;
    END LOOP;
    RETURN sent;
END
$function$;

GRANT USAGE ON SCHEMA ingest_ddl TO PUBLIC;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA ingest_ddl TO PUBLIC;

CREATE EVENT TRIGGER ingest_ddl_command_end ON ddl_command_end WHEN TAG IN (
    'ALTER TABLE', 'CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'CREATE SCHEMA', 'ALTER SCHEMA', 'ALTER TYPE',
    'ALTER DOMAIN', 'CREATE PUBLICATION', 'ALTER PUBLICATION'
) EXECUTE FUNCTION ingest_ddl.on_command_end();
CREATE EVENT TRIGGER ingest_ddl_sql_drop ON sql_drop EXECUTE FUNCTION ingest_ddl.on_sql_drop();
CREATE EVENT TRIGGER ingest_ddl_table_rewrite ON table_rewrite EXECUTE FUNCTION ingest_ddl.on_table_rewrite();
-- Also in sessions that replay a log (session_replication_role = replica).
ALTER EVENT TRIGGER ingest_ddl_command_end ENABLE ALWAYS;
ALTER EVENT TRIGGER ingest_ddl_sql_drop ENABLE ALWAYS;
ALTER EVENT TRIGGER ingest_ddl_table_rewrite ENABLE ALWAYS;
COMMIT;

SELECT ingest_ddl.send_definitions() AS definitions_sent;
