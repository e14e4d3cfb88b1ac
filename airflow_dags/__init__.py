"""DAGs for Apache Airflow, made from the pipelines in `conf`. They read configuration only and need no Spark."""
