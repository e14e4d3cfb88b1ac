"""`ingest schema`: the JSON Schema of a pipeline file."""

from __future__ import annotations

import typer

from ingest.config import json_schema_text


def schema() -> None:
    """Print the JSON Schema of a pipeline file, for editors: they complete and check its keys.

    Example: ingest schema > conf/pipeline.schema.json
    """
    typer.echo(json_schema_text(), nl=False)
