"""The only room that touches Delta's internals: transactions, snapshots, file index, deletion vectors, compaction."""
