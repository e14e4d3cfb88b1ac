package ingest.sql;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.delta.catalog.DeltaTableV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A read-only catalog of Delta tables, whose names may hold any character and any number of dots. */
public final class NamedTables implements TableCatalog, SupportsNamespaces {
    private final Map paths = new LinkedHashMap();
    private final Map identifiers = new LinkedHashMap();
    private TableCatalog delta;
    private String name;

    @Override
    public void initialize(String catalog, CaseInsensitiveStringMap options) {
        name = catalog;
    }

    @Override
    public String name() {
        return name;
    }

    /** Loads tables through `catalog`, Delta's own. */
    public void readThrough(CatalogPlugin catalog) {
        delta = (TableCatalog) catalog;
    }

    /** Forgets all names. */
    public void clear() {
        paths.clear();
        identifiers.clear();
    }

    /** Names the table at `path`. */
    public void add(List namespace, String table, String path) {
        String[] parts = (String[]) namespace.toArray(new String[0]);
        Identifier identifier = Identifier.of(parts, table);
        paths.put(text(identifier), path);
        identifiers.put(text(identifier), identifier);
    }

    private static String text(Identifier identifier) {
        StringBuilder text = new StringBuilder();
        String[] parts = identifier.namespace();
        for (int i = 0; i < parts.length; i++) {
            text.append(parts[i]).append('.');
        }
        return text.append(identifier.name()).toString();
    }

    private Identifier located(Identifier identifier) throws NoSuchTableException {
        Object path = paths.get(text(identifier));
        if (path != null) {
            return Identifier.of(new String[] {"delta"}, (String) path);
        }
        String[] namespace = identifier.namespace();
        if (namespace.length == 1 && namespace[0].equalsIgnoreCase("delta")) {
            return identifier;
        }
        throw new NoSuchTableException(identifier);
    }

    private static Table existing(Table table, Identifier identifier) throws NoSuchTableException {
        if (table instanceof DeltaTableV2 && !((DeltaTableV2) table).tableExists()) {
            throw new NoSuchTableException(identifier);
        }
        return table;
    }

    @Override
    public Table loadTable(Identifier identifier) throws NoSuchTableException {
        return existing(delta.loadTable(located(identifier)), identifier);
    }

    @Override
    public Table loadTable(Identifier identifier, String version) throws NoSuchTableException {
        return existing(delta.loadTable(located(identifier), version), identifier);
    }

    @Override
    public Table loadTable(Identifier identifier, long timestamp) throws NoSuchTableException {
        return existing(delta.loadTable(located(identifier), timestamp), identifier);
    }

    @Override
    public Table loadTable(Identifier identifier, Set privileges) {
        throw readOnly();
    }

    @Override
    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        List found = new ArrayList();
        for (java.util.Iterator i = identifiers.values().iterator(); i.hasNext();) {
            Identifier identifier = (Identifier) i.next();
            if (java.util.Arrays.equals(identifier.namespace(), namespace) && tableExists(identifier)) {
                found.add(identifier);
            }
        }
        return (Identifier[]) found.toArray(new Identifier[0]);
    }

    @Override
    public boolean tableExists(Identifier identifier) {
        try {
            return loadTable(identifier) != null;
        } catch (NoSuchTableException absent) {
            return false;
        }
    }

    @Override
    public String[][] listNamespaces() {
        return namespacesBelow(new String[0]);
    }

    @Override
    public String[][] listNamespaces(String[] namespace) {
        return namespacesBelow(namespace);
    }

    private String[][] namespacesBelow(String[] above) {
        Map found = new LinkedHashMap();
        for (java.util.Iterator i = identifiers.values().iterator(); i.hasNext();) {
            String[] parts = ((Identifier) i.next()).namespace();
            if (parts.length > above.length && startsWith(parts, above)) {
                String[] one = (String[]) java.util.Arrays.copyOf(parts, above.length + 1);
                found.put(java.util.Arrays.asList(one), one);
            }
        }
        return (String[][]) found.values().toArray(new String[0][]);
    }

    private static boolean startsWith(String[] parts, String[] above) {
        for (int i = 0; i < above.length; i++) {
            if (!parts[i].equals(above[i])) {
                return false;
            }
        }
        return true;
    }

    @Override
    public boolean namespaceExists(String[] namespace) {
        for (java.util.Iterator i = identifiers.values().iterator(); i.hasNext();) {
            String[] parts = ((Identifier) i.next()).namespace();
            if (parts.length >= namespace.length && startsWith(parts, namespace)) {
                return true;
            }
        }
        return namespace.length == 0;
    }

    @Override
    public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
        if (!namespaceExists(namespace)) {
            throw new NoSuchNamespaceException(namespace);
        }
        return new LinkedHashMap();
    }

    @Override
    public Table createTable(Identifier identifier, StructType schema, Transform[] partitions, Map properties) {
        throw readOnly();
    }

    @Override
    public Table alterTable(Identifier identifier, TableChange... changes) {
        throw readOnly();
    }

    @Override
    public boolean dropTable(Identifier identifier) {
        throw readOnly();
    }

    @Override
    public void renameTable(Identifier from, Identifier to) {
        throw readOnly();
    }

    @Override
    public void createNamespace(String[] namespace, Map metadata) {
        throw readOnly();
    }

    @Override
    public void alterNamespace(String[] namespace, NamespaceChange... changes) {
        throw readOnly();
    }

    @Override
    public boolean dropNamespace(String[] namespace, boolean cascade) {
        throw readOnly();
    }

    private static UnsupportedOperationException readOnly() {
        return new UnsupportedOperationException("tables are only read through this catalog");
    }
}
