"""The file that Airflow loads: the DAGs of every pipeline in `$INGEST_CONF`, or in the `conf` folder next to
`airflow_dags`."""

from __future__ import annotations

import os
from pathlib import Path

from airflow_dags.factory import dags_of

conf = Path(os.environ.get("INGEST_CONF") or Path(__file__).resolve().parents[1] / "conf")
globals().update((dag.dag_id, dag) for dag in dags_of(conf))
