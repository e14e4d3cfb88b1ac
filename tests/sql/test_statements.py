"""Read-only statements are recognised by Spark's parser before analysis."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from ingest.errors import ConfigError
from ingest.jvm.classes import java_class
from ingest.sql import allowed
from ingest.sql.statement import ReadOnlyStatement, functions, is_pure

pytestmark = pytest.mark.spark

READING = """
select * from t where a in (select b from u) and exists (select 1 from v) order by a nulls last limit 3 offset 1
with x as (select 1 as a) select sum(a) filter (where a > 0) from x group by a having count(*) > 1
with recursive r(n) as (select 1 union all select n + 1 from r where n < 3) select * from r
select rank() over w, lag(a) over (partition by b order by c) from t window w as (partition by b order by c)
select * from t qualify row_number() over (partition by a order by b) = 1
select a, b, count(*) from t group by grouping sets ((a), (b), ())
select * from t, lateral (select 1) x left semi join u using (a) cross join v
select * from t pivot (sum(x) for y in (1, 2))
select * from t unpivot (x for y in (b, c))
select * from t lateral view outer explode(b) x as c
select * from t tablesample (3 rows)
select * except (b) from t union all select * from u intersect select * from v except select 1
select /*+ broadcast(t) */ a[0], m['x'], s.f, j:x.y::int, cast(a as date), case when b then 1 else 2 end from t
select transform(xs, x -> x + 1), listagg(a, ',') within group (order by a), trim(both 'x' from a) from t
select date'2020-01-01' + interval 3 days, a between 1 and 2, a like any ('x%', 'y%'), a is distinct from b from t
select * from shop.public.orders version as of 3
select * from public.orders timestamp as of current_timestamp()
select * from table_changes('public.orders', 1, 3)
select * from delta.`/data/lakehouse/silver/shop/public.orders`
select * from identifier('public.orders')
select * from range(3)
from t |> where a > 1 |> extend b + 1 as c |> aggregate count(*) group by c |> order by c |> limit 3
values (1, 'a'), (2, 'b')
table t
from t select a
/* delete from t */ select 1 -- drop table t
select 'delete from t; drop table t';
show tables in public
show schemas
show columns in public.orders
show create table public.orders
show tblproperties public.orders
show functions like 'a*'
show views
show current namespace
describe public.orders
describe extended public.orders a
describe schema public
describe function sum
describe query select 1
describe detail public.orders
describe history public.orders limit 3
explain select * from t
explain formatted with x as (select 1) select * from x
"""
CHANGING = """
delete from t
/* a comment */ delete from t -- another
with x as (select 1) delete from t
with x as (select 1) insert into t select * from x
from u insert into t select * insert into t2 select *
insert into t values (1)
insert into t by name select 1 as a
insert overwrite t select 1
insert into t replace where a = 1 select 1
insert overwrite directory '/tmp/x' using parquet select 1
insert into identifier('t') select 1
insert into identifier('t' || 't') select 1
update t set a = 1
merge into t using u on t.a = u.a when matched then delete
merge with schema evolution into t using u on t.a = u.a when not matched then insert *
truncate table t
create table t (a int) using delta
create table t as select 1
create or replace table t as select 1
create table t shallow clone u
create table t like u
create schema s
create view v as select 1
create temporary view v as select 1
create or replace temporary view v using csv options (path '/x')
create function f as 'com.example.F'
create temporary function f as 'com.example.F' using jar '/x.jar'
create function f() returns int return 1
create materialized view v as select 1
create streaming table t
create flow f as insert into t select * from u
drop table t
drop table identifier('t' || 't')
drop schema s cascade
drop view v
drop function f
alter table t add columns (b int)
alter table t set tblproperties (a = 'b')
alter table t drop feature deletionVectors
alter table t cluster by (a)
alter schema s set dbproperties (a = 'b')
comment on table t is 'x'
optimize t
optimize t zorder by (a)
vacuum t retain 0 hours
restore table t to version as of 1
convert to delta parquet.`/x`
reorg table t apply (purge)
generate symlink_format_manifest for table t
analyze table t compute statistics
msck repair table t
load data inpath '/x' into table t
refresh table t
refresh '/x'
cache table t
cache lazy table x as select 1
uncache table t
clear cache
set spark.sql.ansi.enabled = false
set
set time zone 'UTC'
set catalog x
reset
use public
add jar '/x.jar'
add file '/x'
list jars
declare variable x int
set variable x = (select 1)
drop temporary variable x
execute immediate 'select 1'
call system.run()
begin select 1; end
begin delete from t; end
begin declare x int default 1; while x < 2 do delete from t; end while; end
explain delete from t
explain extended create table t as select 1
explain with x as (select 1) insert into t select * from x
select transform(a) using 'sh -c evil' from t
from t map a using 'sh -c evil' as b
select reflect('java.lang.System', 'exit', 1)
select Java_Method('java.lang.System', 'exit', 1)
select `try_reflect`('java.lang.System', 'exit', 1)
select builtin.reflect('java.lang.System', 'exit', 1)
select system.builtin.reflect('java.lang.System', 'exit', 1)
select identifier('reflect')('java.lang.System', 'exit', 1)
select identifier('re' || 'flect')('java.lang.System', 'exit', 1)
select * from identifier('t' || 't')
select * from t where a = (select max(reflect('a', 'b')) from u)
select * from t timestamp as of (select reflect('a', 'b'))
select transform(xs, x -> reflect('a', x)) from t
select * from t lateral view reflect('a', 'b') x as c
select sum(a) filter (where reflect('a', 'b') = 'c') over (order by reflect('a', 'b')) from t
select * from t join u on reflect('a', 'b') = t.a
with x as (select reflect('a', 'b')) select 1
from t |> where reflect('a', 'b') = 'c'
values (reflect('a', 'b'))
explain select reflect('a', 'b')
describe query select reflect('a', 'b')
select a_function_of_a_catalog.s.f(1)
select unknown_function(1)
select * from unknown_function(1)
select * from stream t
"""
NO_STATEMENT = """
select 1; delete from t
select 1; select 2
delete from t; select 1
set spark.sql.ansi.enabled = false; select 1
!ls
dfs -ls /
copy into t from '/x'
grant select on t to u
select * into t from u
start transaction
"""


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def test_reading_statements_pass(spark: SparkSession) -> None:
    for text in lines(READING):
        ReadOnlyStatement(spark, text)


@pytest.mark.long
def test_all_other_statements_are_refused(spark: SparkSession) -> None:
    passed = []
    for text in lines(CHANGING):
        try:
            ReadOnlyStatement(spark, text)
        except ConfigError as error:
            assert "not run" in error.problem
        else:
            passed.append(text)
    assert passed == []


def test_several_statements_are_refused(spark: SparkSession) -> None:
    for text in lines(NO_STATEMENT):
        with pytest.raises(ParseException):
            ReadOnlyStatement(spark, text)


def test_variables_are_substituted_before_the_check(spark: SparkSession) -> None:
    name = "spark.ingest.test.statement"
    spark.conf.set(name, "delete from t")
    try:
        with pytest.raises(ConfigError, match="DeleteFromTable"):
            ReadOnlyStatement(spark, f"${{{name}}}")
    finally:
        spark.conf.unset(name)


def test_allowed_plan_classes_exist(spark: SparkSession) -> None:
    """A name without a class could later be that of another one."""
    jvm = spark._jvm
    named = java_class(jvm, "java.lang.Class").forName
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    command, plan = (
        named(f"org.apache.spark.sql.catalyst.plans.logical.{name}", False, loader)
        for name in ("Command", "LogicalPlan")
    )
    for name in sorted(allowed.PLANS):
        for there in (name, f"{name}$"):
            try:
                found = named(there, False, loader)
            except Py4JJavaError as error:
                assert there == name, f"{name}: {error}"
                continue
            if plan.isAssignableFrom(found):
                break
        assert plan.isAssignableFrom(found), name
        if command.isAssignableFrom(found):
            assert name.rpartition(".")[2].startswith(("Show", "Describe", "Explain")), name


def test_functions_with_side_effects_are_refused(spark: SparkSession) -> None:
    """A new function of Spark has to be reviewed before it may run."""
    refused = {name for name in functions(spark) if name.isidentifier() and not is_pure(spark, name)}
    assert refused == {"java_method", "reflect", "try_reflect"}
    assert len(functions(spark)) > 400
