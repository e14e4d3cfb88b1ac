"""Local files without the processes that Hadoop starts for them.

Hadoop without its native library starts a process for every permission that it sets and every link that it asks for:
ten for a commit, which take longer than the commit. Java has calls for both. And to rename a file to a name that must
be free, Hadoop looks whether it is and then renames: of two processes that commit at one time both may succeed, and
one commit is lost. A link takes a name only where it is free.
"""

from __future__ import annotations

_PLAIN = {"fs.file.impl": "RawLocalFileSystem", "fs.AbstractFileSystem.file.impl": "local.RawLocalFs"}
"""Hadoop's own classes that write no checksums beside files: a file each."""
_DIRECT = {"fs.file.impl": "DirectLocalFileSystem", "fs.AbstractFileSystem.file.impl": "DirectLocalFs"}


def properties(has_library: bool) -> dict[str, str]:
    """Returns the properties of a session that make its JVM open local files by the project's classes, or by Hadoop's
    where it runs without them."""
    package, classes = ("ingest.files", _DIRECT) if has_library else ("org.apache.hadoop.fs", _PLAIN)
    return {f"spark.hadoop.{name}": f"{package}.{class_name}" for name, class_name in classes.items()}
