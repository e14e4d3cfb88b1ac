"""How the stack's Java services are started: small heaps, quick starts, one log format."""

from __future__ import annotations

from pathlib import Path

from ingest.jvm.jars import jars_folder, require_java

_LOGGING_FILE = Path(__file__).with_name("log4j2.properties")


def java_command(configuration: str, heap_megabytes: int, *arguments: str) -> list[str]:
    """`java` with the jars of `configuration` on its class path, then a main class and its arguments."""
    return [
        str(require_java()),
        f"-Xmx{heap_megabytes}m",
        # These processes live for minutes beside Spark on few cores: what the second compiler and the
        # concurrent collector would win later, they cost at the start.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Dlog4j2.configurationFile={_LOGGING_FILE}",
        "-cp",
        f"{jars_folder(configuration)}/*",
        *arguments,
    ]


def properties_text(properties: dict[str, object]) -> str:
    """A Java properties file. Values are paths, numbers and addresses of our own making."""
    return "".join(f"{key}={str(value).replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items())
