"""The classes of plans and expressions, and the functions, that a read-only statement may consist of."""

from __future__ import annotations

_SQL = "org.apache.spark.sql"
_LOGICAL, _ANALYSIS, _COMMAND = (
    f"{_SQL}.catalyst.plans.logical",
    f"{_SQL}.catalyst.analysis",
    f"{_SQL}.execution.command",
)
_EXPRESSIONS = f"{_SQL}.catalyst.expressions"


def _split(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _in(package: str, names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in _split(names))


PLANS: frozenset[str] = frozenset().union(
    # Parts of a query.
    _in(
        _LOGICAL,
        "Aggregate DataFrameDropColumns Distinct Except Expand Filter Generate GlobalLimit Intersect Join LateralJoin "
        "LimitAll LocalLimit LocalRelation NearestByJoin Offset OneRowRelation Pivot Project RebalancePartitions "
        "Repartition RepartitionByExpression Sample Sort SubqueryAlias Union Unpivot UnresolvedHint UnresolvedWith "
        "Window WithWindowDefinition",
    ),
    _in(
        _ANALYSIS,
        "RelationChanges RelationTimeTravel UnresolvedHaving UnresolvedInlineTable UnresolvedQualify "
        "UnresolvedRelation UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction",
    ),
    _in(_EXPRESSIONS, "PipeOperator"),
    # SHOW, DESCRIBE and EXPLAIN, and the objects that they name.
    _in(
        _LOGICAL,
        "DescribeColumn DescribeFunction DescribeNamespace DescribeRelation DescribeTablePartition ShowColumns "
        "ShowCreateTable ShowFunctions ShowPartitions ShowTablePartition ShowTableProperties ShowTables "
        "ShowTablesExtended ShowViews",
    ),
    _in(
        _COMMAND,
        "DescribeQueryCommand DescribeRelationJsonCommand ExplainCommand ShowCatalogsCommand ShowCollationsCommand "
        "ShowCurrentNamespaceCommand ShowNamespacesCommand ShowProceduresCommand",
    ),
    _in(
        f"{_SQL}.delta.commands",
        "DescribeDeltaDetailCommand DescribeDeltaHistory",
    ),
    _in(
        _ANALYSIS,
        "CurrentNamespace UnresolvedFunctionName UnresolvedNamespace UnresolvedTable UnresolvedTableOrView "
        "UnresolvedView",
    ),
    _in(f"{_SQL}.delta", "UnresolvedPathBasedDeltaTable UnresolvedPathBasedTable"),
)
"""Classes of logical plans that only read."""
_NAMES = _in(
    _ANALYSIS,
    "LazyExpression MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFieldName "
    "UnresolvedFunction UnresolvedGenerator UnresolvedOrdinal UnresolvedPartitionSpec UnresolvedPipeAggregateOrdinal "
    "UnresolvedRegex UnresolvedStar UnresolvedStarExceptOrReplace UnresolvedStarWithColumns "
    "UnresolvedStarWithColumnsRenames UnresolvedWithinGroup",
)
"""Classes of expressions that stand for columns and functions. Other expressions are operators of Spark's own
package."""
_RUN_CODE = (f"{_EXPRESSIONS}.objects.", *_in(_EXPRESSIONS, "CallMethodViaReflection PythonUDAF PythonUDF ScalaUDF"))
_GROUPS = _split(
    "agg_funcs array_funcs avro_funcs bitwise_funcs collection_funcs conditional_funcs conversion_funcs csv_funcs "
    "datetime_funcs generator_funcs hash_funcs json_funcs lambda_funcs map_funcs math_funcs predicate_funcs "
    "protobuf_funcs sketch_funcs st_funcs string_funcs struct_funcs table_funcs url_funcs variant_funcs vector_funcs "
    "window_funcs xml_funcs"
)
"""Spark's groups of functions that compute a value. In the group misc_funcs some run code."""
_MISCELLANEOUS = _split(
    "aes_decrypt aes_encrypt assert_true bitmap_bit_position bitmap_bucket_number bitmap_count current_catalog "
    "current_database current_path current_schema current_user input_file_block_length input_file_block_start "
    "input_file_name monotonically_increasing_id raise_error session_user spark_partition_id try_aes_decrypt typeof "
    "user uuid version"
)
DELTA_FUNCTIONS = frozenset({"table_changes", "table_changes_by_path"})
"""Delta's table functions; they read the change data feed."""


def is_expression(name: str) -> bool:
    """Returns True for the class of an expression that computes a value or names a column."""
    is_builtin = name.startswith(f"{_EXPRESSIONS}.") and not name.startswith(_RUN_CODE)
    return is_builtin or name in _NAMES


def is_function(name: str, group: str) -> bool:
    """Returns True for a built-in function of one of Spark's groups that only computes a value."""
    return group in _GROUPS or (group == "misc_funcs" and name in _MISCELLANEOUS)
