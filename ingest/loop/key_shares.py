"""Merges the events of a batch apart that do not carry the key in force of their table, or carry it from before another
one was in force."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from ingest.batches.key_split import account_of_repeated, last_position, split_at, split_by_key
from ingest.batches.schemas import Schemas
from ingest.batches.seen_versions import Incoming
from ingest.batches.table_batch import TableBatch
from ingest.changelog.accounting import Account
from ingest.evolution.definition import Place
from ingest.evolution.keys import Key
from ingest.loop.table_schemas import TableSchemas
from ingest.reconcile import TableState
from ingest.reconcile.several_keys import require_rekeyable


class _Merge(Protocol):
    """Merges a batch and returns its account, as `TableMerge` does."""

    def __call__(
        self,
        batch: TableBatch,
        schemas: Schemas,
        origin: str,
        carried: Key | None = None,
        shares: Mapping[Key, TableBatch] | None = None,
    ) -> Account: ...


class KeyShares:
    """Splits batches by the keys that their events carry. `merge`: merges a share."""

    def __init__(self, table_schemas: TableSchemas, table_state: Callable[[str], TableState], merge: _Merge) -> None:
        self._table_schemas = table_schemas
        self._keys = table_schemas.table_keys
        self._table_state = table_state
        self._merge = merge

    def merged_apart(self, batch: TableBatch, incoming: Incoming, schemas: Schemas, origin: str) -> Account | None:
        """Returns the account of a batch that is merged in shares; None if all of its events have the key in force
        now. `incoming`: its groups with their columns. `origin`: the table's server and database."""
        if (since := self._keys.loss_of_key(batch, incoming, self._table_state(batch.table))) is not None:
            return self._merge_without_key(batch, since, schemas, origin)
        if others := self._keys.other_keys(batch):
            return self._merge_each_key(batch, others, schemas, origin)
        since = self._keys.key_again_since(batch)
        return None if since is None else self._merge_late_of_key(batch, since, schemas, origin)

    def _merge_each_key(self, batch: TableBatch, others: Mapping[Key, Key], schemas: Schemas, origin: str) -> Account:
        """Merges the events of each key on their own, those of the key that is in force at the end last, and returns
        the account of all. `others`: `TableKeys.other_keys`."""
        stored = self._table_state(batch.table)
        require_rekeyable(batch.table, stored, others)
        own, shares = split_by_key(batch, others)
        last = {key: last_position(share) for key, share in shares.items()}
        if self._keys.stays_keyless(batch, own, last, stored):
            return self._merge(batch, schemas, origin, shares={(): own, **shares})
        account = account_of_repeated(batch, [own, *shares.values()])
        account += Account(batch.table) if own.is_empty else self._merge(own, schemas, origin)
        former = self._keys.add_keys(batch.table, last, stored)
        for key in sorted(shares, key=lambda key: key not in former):
            account += self._merge(shares[key], schemas, origin, key if key in former else None)
        return account

    def _merge_late_of_key(self, batch: TableBatch, since: Place, schemas: Schemas, origin: str) -> Account:
        """Merges the events from before the key was in force again as those of another key, then the others."""
        late, others = split_at(batch, since)
        account, key = account_of_repeated(batch, [late, others]), self._table_schemas.key(batch)
        for share, carried in ((replace(late, is_part=not others.is_empty), key), (others, None)):
            account += Account(batch.table) if share.is_empty else self._merge(share, schemas, origin, carried)
        return account

    def _merge_without_key(self, batch: TableBatch, since: Place, schemas: Schemas, origin: str) -> Account:
        """Merges the events with a key, takes the key from the table, merges those without one, then those that have
        one again, and returns the account of all. `since`: the position through which events have the key first."""
        keyed, shares = split_by_key(batch, {(): ()})
        first, again = split_at(keyed, since)
        account = account_of_repeated(batch, [first, again, shares[()]])
        if not first.is_empty:
            account += self._merge(replace(first, is_part=True), schemas, origin)
        self._keys.lose_key(batch.table, since, self._table_state(batch.table))
        for share in (shares[()], again):
            account += self._merge(share, schemas, origin) if not share.is_empty else Account(batch.table)
        return account
