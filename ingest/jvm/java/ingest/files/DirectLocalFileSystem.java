package ingest.files;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Local files without the processes that Hadoop starts for permissions and links where it has no native library. */
public class DirectLocalFileSystem extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        if (permission.getStickyBit()) {
            super.setPermission(path, permission);
            return;
        }
        try {
            Files.setPosixFilePermissions(
                pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
        } catch (UnsupportedOperationException notPosix) {
            super.setPermission(path, permission);
        }
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
        boolean link = Files.isSymbolicLink(pathToFile(path).toPath());
        return link ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
}
