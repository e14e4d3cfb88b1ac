"""The ledger of erasures, keyed hashes of keys, cutoffs, and the test whether an event stands before a cutoff."""
