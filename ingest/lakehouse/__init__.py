"""The tables of a lakehouse: bronze, silver, tombstones, quarantine, accounts, catalog.

Any number of processes may write the same table at the same time (runs, backfills, erasures, upkeep): commits are
serialized, by the store or on a local disk by `delta.commit_lock`; each is optimistic, and fails with a conflict if
another writer has meanwhile committed a batch since its `pin_snapshot`, removed a file that it removes, or reached its
`TxnVersion`; the loser then works again on the new snapshot (`delta.conflict_retry`). Two runs of one pipeline are no
exception: the `TxnVersion`s of accounts let only one of them merge a slice, and the other one stops as overtaken.
"""
