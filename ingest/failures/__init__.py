"""The errors shown for exceptions of Spark, Delta, Kafka and storage: the sentence, the remedy, and whether to
retry."""
