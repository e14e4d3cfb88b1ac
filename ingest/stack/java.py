"""Command lines of the stack's Java services, with small heaps, fast starts and one log format."""

from __future__ import annotations

from pathlib import Path

from ingest.jvm.jars import jars_folder, require_java

_LOGGING_FILE = Path(__file__).with_name("log4j2.properties")


def java_command(configuration: str, heap_megabytes: int, *arguments: str) -> list[str]:
    """Returns a `java` command with the jars of `configuration` on its class path. `arguments`: main class and
    arguments."""
    return [
        str(require_java()),
        f"-Xmx{heap_megabytes}m",
        # These processes run for minutes, next to Spark on few cores: C2 and G1 would cost more at the start than they
        # gain later.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={_LOGGING_FILE}",
        "-cp",
        f"{jars_folder(configuration)}/*",
        *arguments,
    ]


def properties_text(properties: dict[str, object]) -> str:
    """Returns the text of a Java properties file. Only backslashes in values are escaped."""
    return "".join(f"{key}={str(value).replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items())
