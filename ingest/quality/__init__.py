"""Compares a silver table with its source, row by row, in every column.

compare_with_postgres(spark, dsn, "claims.members", silver_rows).equal
"""

from ingest.quality.comparison import Comparison, compare, compare_with_postgres

__all__ = ["Comparison", "compare", "compare_with_postgres"]
