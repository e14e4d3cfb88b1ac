"""How the project uses Spark's public interface: the session, its settings, checkpoints, tasks over Arrow."""
