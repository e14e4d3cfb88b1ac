"""The JVM beside Python: its classes, its start, and the jars on its classpath."""
