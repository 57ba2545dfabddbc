"""`TransferStore`: the writes of a transfer to the store of a cluster.

Guarantees: each write compares the key `transfer`, so that a second transfer, a late write of an
earlier one and a founding broker exclude each other. An import is published by its last
transaction; it compares that there is no cluster. A lost answer is settled by sending the same
write again, or by a look at the store.

It decides nothing: `node.transfer` gives the order of the steps and changes the files.
"""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.cluster import values
from penstock.cluster.keys import Keys
from penstock.cluster.link.transfer_mark import Transfer, read_transfer, write_transfer
from penstock.cluster.stores.port import (
    Compare,
    Delete,
    DeletePrefix,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    Snapshot,
)
from penstock.cluster.transfer.carried import in_batches
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.core.limits import METADATA_ATTEMPTS_MAX

KEYS_PER_TRANSACTION: Final = 100
BYTES_PER_TRANSACTION: Final = 1_200_000
"""Below the largest request that etcd accepts; one value may have up to 1,048,576 bytes."""


class TransferStore:
    """The store of a cluster, during a transfer."""

    def __init__(self, store: MetadataStore, keys: Keys) -> None:
        self._store = store
        self.keys = keys
        self._revision = 0
        """Revision of the key `transfer` as this transfer wrote or found it."""

    async def find(self) -> Transfer | None:
        """Return the transfer that the store has, and go on with it; None for none."""
        pair = await self._value(self.keys.transfer())
        self._revision = 0 if pair is None else pair.mod_revision
        return None if pair is None else read_transfer(pair.value)

    async def cluster_id(self) -> str | None:
        """Return the id of the cluster that is published here; None for none."""
        pair = await self._value(self.keys.cluster_id())
        return None if pair is None else values.read_cluster_id(pair.value)

    async def snapshot(self) -> Snapshot:
        """Return all keys of the cluster."""
        return await self._store.read_prefix(self.keys.root)

    async def begin(self, transfer: Transfer, compares: Sequence[Compare] = ()) -> None:
        """Write the key `transfer`, in place of the one that `find` returned."""
        key, value = self.keys.transfer(), write_transfer(transfer)
        compares = (Compare.unchanged(key, self._revision), *compares)
        for _ in range(METADATA_ATTEMPTS_MAX):
            try:
                result = await self._store.transact(compares, (Put(key, value),))
            except AmbiguousStoreError:
                result = None
            found = await self._value(key)
            if found is not None and found.value == value:
                self._revision = found.mod_revision
                return
            if result is not None:
                break
        raise StoreError(
            "another process changes the metadata in the store: try again when it has ended"
        )

    async def clear(self) -> None:
        """Delete everything below the root but the key `transfer`."""
        sections: dict[Operation, None] = {}
        for pair in (await self.snapshot()).values:
            section, slash, _ = pair.key.removeprefix(self.keys.root).partition("/")
            key = f"{self.keys.root}{section}{slash}"
            if key != self.keys.transfer():
                sections[DeletePrefix(key) if slash else Delete(key)] = None
        if sections:
            await self._write(tuple(sections))

    async def write_disk(self, broker_id: int, directory_id: str) -> int:
        """Write the key of the broker's disk; return its revision."""
        key = self.keys.node(broker_id)
        put = Put(key, values.write_node(directory_id))
        for _ in range(METADATA_ATTEMPTS_MAX):
            with contextlib.suppress(AmbiguousStoreError):
                # Absent: a late write would make the entries of this import invalid.
                await self._store.transact((self._guard(), Compare.absent(key)), (put,))
            found = await self._value(key)
            if found is not None:
                await self._check_guard()
                return found.mod_revision
        raise StoreError(f"{key} could not be written")

    async def directory_of(self, broker_id: int) -> str | None:
        """Return the id of the broker's data directory; None if it has never registered."""
        pair = await self._value(self.keys.node(broker_id))
        return None if pair is None else values.read_node(pair.value, 0).directory_id

    async def write_all(self, pairs: Iterable[tuple[str, bytes]]) -> None:
        """Write these keys in as many transactions as are needed."""
        for batch in in_batches(pairs, KEYS_PER_TRANSACTION, BYTES_PER_TRANSACTION):
            await self._write(batch)

    async def publish(self, cluster_id: str) -> None:
        """End an import: the cluster exists then. It may have been published before."""
        keys = self.keys
        operations = (
            Put(keys.format(), values.write_format()),
            Put(keys.cluster_id(), values.write_cluster_id(cluster_id)),
            Delete(keys.transfer()),
        )
        compares = (self._guard(), Compare.absent(keys.cluster_id()))
        for _ in range(METADATA_ATTEMPTS_MAX):
            with contextlib.suppress(AmbiguousStoreError):
                await self._store.transact(compares, operations)
            found = await self.cluster_id()
            if found == cluster_id:
                return
            await self._check_guard()
        raise StoreError("the imported metadata could not be published")

    async def cancel(self) -> None:
        """End an export that did not happen: the cluster stays here."""
        await self._end((Delete(self.keys.transfer()),))

    async def remove_all(self) -> None:
        """End an export: nothing of the cluster stays here."""
        await self._end((DeletePrefix(self.keys.root),))

    async def registered(self) -> dict[int, KeyValue]:
        """Return the keys of registered brokers by id."""
        prefix = self.keys.brokers()
        found = (await self._store.read_prefix(prefix)).values
        return {int(pair.key.removeprefix(prefix)): pair for pair in found}

    async def _end(self, operations: Sequence[Operation]) -> None:
        """Write operations that delete the key `transfer`."""
        for _ in range(METADATA_ATTEMPTS_MAX):
            with contextlib.suppress(AmbiguousStoreError):
                await self._store.transact((self._guard(),), operations)
            if await self._value(self.keys.transfer()) is None:
                return
            await self._check_guard()
        raise StoreError(f"{self.keys.transfer()} could not be deleted")

    async def _write(self, operations: Sequence[Operation]) -> None:
        """Write; once more after a lost answer, because the same write twice does no harm."""
        for _ in range(METADATA_ATTEMPTS_MAX):
            try:
                result = await self._store.transact((self._guard(),), operations)
            except AmbiguousStoreError:
                continue
            if result.succeeded:
                return
            await self._check_guard()
        raise StoreError("the store took no write of the transfer")

    def _guard(self) -> Compare:
        return Compare.unchanged(self.keys.transfer(), self._revision)

    async def _check_guard(self) -> None:
        pair = await self._value(self.keys.transfer())
        if pair is None or pair.mod_revision != self._revision:
            raise StoreError(
                "another process changes the metadata in the store: try again when it has ended"
            )

    async def _value(self, key: str) -> KeyValue | None:
        found = (await self._store.read(key)).values
        return found[0] if found else None
