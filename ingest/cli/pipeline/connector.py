"""`ingest connector`: writes a connector configuration that loses nothing, and the source's triggers for DDL."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Annotated, Any

import typer

from ingest.config import Pipeline, load
from ingest.connector import Placement, Setting
from ingest.connector import ddl_trigger as ddl_trigger_of
from ingest.connector import recipe as recipe_of
from ingest.errors import ConfigError

app = typer.Typer(
    help="The configuration of a Debezium connector that loses nothing, and triggers that tell of DDL.",
    no_args_is_help=True,
)


@app.command(
    epilog="Example: ingest connector recipe postgres shop --json | curl --json @- http://connect:8083/connectors. "
    "It refers to ${env:POSTGRES_HOST}, POSTGRES_PORT, POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB of the worker, "
    "whose own file needs config.providers=env and "
    "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider."
)
def recipe(
    database: Annotated[str, typer.Argument(help="The kind of database: postgres.")],
    pipeline: Annotated[
        str | None,
        typer.Argument(help="A pipeline's name or file, which tells the connector's name, topics and tables."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the connector, its topics, slot and publication.")] = None,
    table: Annotated[list[str] | None, typer.Option(help="schema.table to read. May be repeated.")] = None,
    schema: Annotated[list[str] | None, typer.Option(help="Schema whose tables are all read. May be repeated.")] = None,
    host: Annotated[str | None, typer.Option(help="The database's host.")] = None,
    port: Annotated[int | None, typer.Option(help="The database's port.")] = None,
    user: Annotated[str | None, typer.Option(help="The user that reads the log; needs REPLICATION.")] = None,
    dbname: Annotated[str | None, typer.Option(help="The database's name.")] = None,
    kafka: Annotated[
        str | None,
        typer.Option(help="Brokers for the signals of `ingest resync`, as the connector reaches them: host:port."),
    ] = None,
    numbers_as_text: Annotated[
        bool, typer.Option("--numbers-as-text", help="Send numeric columns as text, for NaN and Infinity.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON that POST /connectors takes.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Write the configuration of a connector that loses nothing. Passwords are neither options nor in the output."""
    del debug
    if database != "postgres":
        raise ConfigError(f"there is no recipe for {database!r}", "take postgres")
    options = {
        "host": host,
        "port": None if port is None else str(port),
        "user": user,
        "database": dbname,
        "name": name,
    }
    overrides: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
    overrides["numbers_as_text"] = numbers_as_text
    if table or schema:
        overrides |= {"tables": table or (), "schemas": schema or ()}
    if kafka is not None:
        overrides["kafka"] = {"bootstrap.servers": kafka}
    if pipeline is None and name is None:
        raise ConfigError("the connector has no name", "give --name, or the pipeline whose changelog it writes")
    placement = replace(_placement(load(pipeline)) if pipeline is not None else Placement(""), **overrides)
    settings = recipe_of(placement)
    if as_json:
        config = {setting.name: setting.value for setting in settings}
        typer.echo(json.dumps({"name": placement.name, "config": config}, indent=2, ensure_ascii=False))
    else:
        _show(settings)


@app.command(
    epilog='Example: ingest connector ddl-trigger postgres | psql "$DSN" -v ON_ERROR_STOP=1. Run it as a superuser, in '
    "the database that the connector reads, once the connector is running. It may be run again at any time."
)
def ddl_trigger(
    database: Annotated[str, typer.Argument(help="The kind of database: postgres.")],
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole trace of a failure.")] = False,
) -> None:
    """Write SQL for event triggers that send each change of a table's definition as a message of the changelog."""
    del debug
    if database != "postgres":
        raise ConfigError(f"there is no trigger for {database!r}", "take postgres")
    typer.echo(ddl_trigger_of(), nl=False)


def _placement(pipeline: Pipeline) -> Placement:
    """Returns the settings of the connector that the pipeline's file tells."""
    source = pipeline.source
    prefix, tables, schemas = _topics(pipeline)
    debezium, spelled = source.debezium, source.debezium.model_fields_set
    return Placement(
        source.connect.connector if source.connect is not None else prefix,
        tables,
        schemas,
        topic_prefix=prefix,
        placeholder=debezium.unavailable_value_placeholder if "unavailable_value_placeholder" in spelled else "",
        heartbeat_prefix=debezium.heartbeat_prefix if "heartbeat_prefix" in spelled else "",
        transaction_suffix=debezium.topic_transaction if "topic_transaction" in spelled else "",
        kafka=source.kafka,
        signal_topic=debezium.signal_topic or "",
        notification_topic=debezium.notification_topic or "",
    )


def _topics(pipeline: Pipeline) -> tuple[str, list[str], list[str]]:
    """Returns the topics' prefix and the tables and schemas that the file names. Raises ConfigError if it tells no
    prefix."""
    source = pipeline.source
    tables = [topic.split(".", 1)[1] for topic in source.topics or () if topic.count(".") >= 2]
    found = re.match(r"[\w-]+(?:\\\.|\[\.\])(\w+)(?:\\\.|\[\.\])", source.topic_pattern or "")
    prefix = source.topic_prefix
    if prefix is None:
        raise ConfigError(
            f"the topics of pipeline {pipeline.name!r} don't tell the connector's topic.prefix",
            "set source: {debezium: {topic.prefix: …}} in its file, or give --name and --table",
        )
    return prefix, tables, [found[1]] if found else []


def _show(settings: list[Setting]) -> None:
    """Prints each setting below its reason, a line each, so that the terminal's edge cuts nothing off."""
    for setting in settings:
        typer.echo(f"# {setting.reason}\n{setting.name}={setting.value}")
