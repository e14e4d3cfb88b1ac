"""The JVM: the jars on its class path, the project's own Java, its start and its output."""
