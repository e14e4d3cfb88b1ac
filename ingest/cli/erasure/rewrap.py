"""`ingest rewrap`: wraps data keys by the newest master key."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Annotated

import typer

from ingest.cli.printing import plain_console
from ingest.config import load
from ingest.errors import ConfigError


def rewrap(
    pipeline: Annotated[str, typer.Argument(help="A pipeline's name or file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Wrap the data keys of shredded columns by the newest master key.

    Destroy the older master keys afterwards: then copies of the old key store
    can't decrypt anything any more, erased values included.

    Example: ingest rewrap claims
    """
    del debug
    from ingest.pipeline.shredding import data_keys_of

    keys = data_keys_of(load(pipeline))
    if keys is None:
        raise ConfigError("the pipeline shreds no columns", "declare them: tables: {…: {shred: […]}}")
    with closing(keys.open_store()) as store:
        count = store.rewrap()
    console = plain_console()
    if as_json:
        console.out(json.dumps({"rewrapped": count, "master": max(keys.masters)}))
    else:
        console.print(f"{count:,} keys are wrapped again; all are wrapped by version {max(keys.masters)} now")
