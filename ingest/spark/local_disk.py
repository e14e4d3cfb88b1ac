"""A local disk as Spark's JVM writes to it.

Hadoop without its native library starts a process for every permission that it sets and every link that it asks for:
ten for a commit, which take longer than the commit. Java has calls for both. And to rename a file to a name that must
be free, Hadoop looks whether it is and then renames: of two processes that commit at one time both may succeed, and
one commit is lost. A link takes a name only where it is free.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from ingest.jvm.sources import define

_FILES, _CONTEXT = "DirectLocalFileSystem", "DirectLocalFs"
_PACKAGE = "org.apache.hadoop.fs"
_IMPLEMENTATIONS = {
    "fs.file.impl": ("RawLocalFileSystem", _FILES),
    "fs.AbstractFileSystem.file.impl": ("local.RawLocalFs", _CONTEXT),
}
"""Hadoop's property → its own class that makes no checksums beside files, and the one that takes its place."""
PROPERTIES = {f"spark.hadoop.{name}": f"{_PACKAGE}.{plain}" for name, (plain, _) in _IMPLEMENTATIONS.items()}
"""A session that `by_direct_calls` is to change starts with these."""
_SOURCE = f"""
    package {_PACKAGE};

    import java.io.IOException;
    import java.net.URI;
    import java.net.URISyntaxException;
    import java.nio.file.FileSystemException;
    import java.nio.file.Files;
    import java.nio.file.attribute.PosixFilePermissions;
    import org.apache.hadoop.conf.Configuration;
    import org.apache.hadoop.fs.permission.FsPermission;

    public class {_FILES} extends RawLocalFileSystem {{
        public void setPermission(Path path, FsPermission permission) throws IOException {{
            if (permission.getStickyBit()) {{
                super.setPermission(path, permission);
                return;
            }}
            try {{
                Files.setPosixFilePermissions(
                    pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
            }} catch (UnsupportedOperationException notPosix) {{
                super.setPermission(path, permission);
            }}
        }}

        public FileStatus getFileLinkStatus(Path path) throws IOException {{
            boolean link = Files.isSymbolicLink(pathToFile(path).toPath());
            return link ? super.getFileLinkStatus(path) : getFileStatus(path);
        }}
    }}

    public class {_CONTEXT} extends DelegateToFileSystem {{
        public {_CONTEXT}(URI uri, Configuration configuration) throws IOException, URISyntaxException {{
            super(uri, new {_FILES}(), configuration, "file", false);
        }}

        public int getUriDefaultPort() {{
            return -1;
        }}

        // What a name may be is for the disk to say.
        public boolean isValidName(String name) {{
            return true;
        }}

        public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {{
            RawLocalFileSystem files = (RawLocalFileSystem) fsImpl;
            java.nio.file.Path source = files.pathToFile(from).toPath();
            if (overwrite || !Files.isRegularFile(source)) {{
                super.renameInternal(from, to, overwrite);
                return;
            }}
            try {{
                Files.createLink(files.pathToFile(to).toPath(), source);
            }} catch (java.nio.file.FileAlreadyExistsException taken) {{
                throw new FileAlreadyExistsException(to + " exists");
            }} catch (UnsupportedOperationException noLinks) {{
                super.renameInternal(from, to, false);
                return;
            }} catch (FileSystemException noLinksHere) {{
                super.renameInternal(from, to, false);
                return;
            }}
            Files.delete(source);
        }}
    }}
    """


def by_direct_calls(session: SparkSession) -> None:
    """Lets the session's JVM, which is all of its Spark, reach local files by these classes. One whose properties say
    another class than `PROPERTIES` keeps that."""
    jvm: Any = session._jvm
    configuration: Any = session.sparkContext._jsc.hadoopConfiguration()
    wanted = {n: c for n, (plain, c) in _IMPLEMENTATIONS.items() if configuration.get(n) == f"{_PACKAGE}.{plain}"}
    if not wanted:
        return
    define(jvm, _SOURCE, f"{_PACKAGE}.RawLocalFileSystem", (_FILES, _CONTEXT))
    for name, its in wanted.items():
        configuration.set(name, f"{_PACKAGE}.{its}")
    # What was opened while the session started is kept by its scheme.
    jvm.org.apache.hadoop.fs.FileSystem.closeAll()
