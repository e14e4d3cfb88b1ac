"""The JVM: the jars on its class path, the project's own Java, its start and its output, and all calls of Spark's Java
outside of `delta`, behind DataFrames and columns."""
