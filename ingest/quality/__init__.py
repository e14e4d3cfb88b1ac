"""Is a silver table what its source says it is? Row by row, every column.

compare_with_postgres(spark, dsn, "claims.members", silver_rows).equal
"""

from ingest.quality.comparison import Comparison, compare, compare_with_postgres

__all__ = ["Comparison", "compare", "compare_with_postgres"]
