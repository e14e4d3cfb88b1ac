package ingest.sql;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.analysis.UnresolvedFunction;
import org.apache.spark.sql.catalyst.analysis.UnresolvedGenerator;
import org.apache.spark.sql.catalyst.analysis.UnresolvedTableValuedFunction;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.Product;
import scala.collection.IterableOnceOps;
import scala.collection.IterableOps;
import scala.collection.Iterator;

/** All parts of a parsed statement, including those that Spark's own traversals miss: the plan inside an EXPLAIN, the
 * relation of a time travel, the closure by which an IDENTIFIER clause makes its plan later. */
public final class PlanParts {
    private final Set plans = new TreeSet();
    private final Set expressions = new TreeSet();
    private final Set functions = new TreeSet();
    private final Set feeds = new TreeSet();
    private final ArrayDeque open = new ArrayDeque();

    public PlanParts(Object plan) {
        Set seen = Collections.newSetFromMap(new IdentityHashMap());
        add(plan);
        while (!open.isEmpty()) {
            Object part = open.pop();
            if (seen.add(part)) {
                note(part);
                addPartsOf(part);
            }
        }
    }

    /** Returns class names of logical plans, and of closures, which may make some. */
    public Set plans() {
        return plans;
    }

    /** Returns class names of all other tree nodes. */
    public Set expressions() {
        return expressions;
    }

    /** Returns names of the functions that are called, as they are written, with dots between their parts. */
    public Set functions() {
        return functions;
    }

    /** Returns names or paths of the tables whose change data feed is read, as they are written. */
    public Set feeds() {
        return feeds;
    }

    private void note(Object part) {
        if (part instanceof LogicalPlan || isClosure(part)) {
            plans.add(part.getClass().getName());
        } else if (part instanceof TreeNode) {
            expressions.add(part.getClass().getName());
        }
        if (part instanceof UnresolvedFunction) {
            functions.add(joined(((UnresolvedFunction) part).nameParts()));
        } else if (part instanceof UnresolvedTableValuedFunction) {
            UnresolvedTableValuedFunction function = (UnresolvedTableValuedFunction) part;
            IterableOps arguments = function.functionArgs();
            String name = joined(function.name());
            functions.add(name);
            if (name.toLowerCase().startsWith("table_changes") && !arguments.isEmpty()
                && arguments.head() instanceof Literal) {
                feeds.add(String.valueOf(((Literal) arguments.head()).value()));
            }
        } else if (part instanceof UnresolvedGenerator) {
            functions.add(((UnresolvedGenerator) part).name().unquotedString());
        }
    }

    private static String joined(IterableOnceOps parts) {
        return parts.mkString(".");
    }

    private static boolean isClosure(Object part) {
        boolean function = part instanceof scala.Function0 || part instanceof scala.Function1
            || part instanceof scala.Function2 || part instanceof scala.Function3;
        // Collections and companions of case classes are functions too.
        return function && !(part instanceof scala.collection.Iterable) && !(part instanceof Product);
    }

    private void addPartsOf(Object part) {
        if (part instanceof Product) {
            addAll(((Product) part).productIterator());
        }
        if (part instanceof TreeNode) {
            addAll(((TreeNode) part).children().iterator());
        }
        if (part instanceof scala.collection.Iterable) {
            addAll(((scala.collection.Iterable) part).iterator());
        } else if (part instanceof Map) {
            addAll(((Map) part).values());
        } else if (part instanceof Collection) {
            addAll((Collection) part);
        } else if (part instanceof Object[]) {
            addAll(java.util.Arrays.asList((Object[]) part));
        }
    }

    private void addAll(Iterator parts) {
        while (parts.hasNext()) {
            add(parts.next());
        }
    }

    private void addAll(Collection parts) {
        for (java.util.Iterator i = parts.iterator(); i.hasNext();) {
            add(i.next());
        }
    }

    private void add(Object part) {
        if (part != null) {
            open.push(part);
        }
    }
}
