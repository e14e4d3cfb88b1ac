package ingest.files;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;

/**
 * DirectLocalFileSystem for Hadoop's FileContext. A rename that must not overwrite makes a hard link, which fails if
 * the name is taken: of several processes that commit the same version, one succeeds.
 */
public class DirectLocalFs extends DelegateToFileSystem {
    public DirectLocalFs(URI uri, Configuration configuration) throws IOException, URISyntaxException {
        super(uri, new DirectLocalFileSystem(), configuration, "file", false);
    }

    public int getUriDefaultPort() {
        return -1;
    }

    // The disk decides which names are valid.
    public boolean isValidName(String name) {
        return true;
    }

    public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
        RawLocalFileSystem files = (RawLocalFileSystem) fsImpl;
        java.nio.file.Path source = files.pathToFile(from).toPath();
        if (overwrite || !Files.isRegularFile(source)) {
            super.renameInternal(from, to, overwrite);
            return;
        }
        try {
            Files.createLink(files.pathToFile(to).toPath(), source);
        } catch (java.nio.file.FileAlreadyExistsException taken) {
            throw new FileAlreadyExistsException(to + " exists");
        } catch (UnsupportedOperationException noLinks) {
            super.renameInternal(from, to, false);
            return;
        } catch (FileSystemException noLinksHere) {
            super.renameInternal(from, to, false);
            return;
        }
        Files.delete(source);
    }
}
