"""`DeclarationMemory`: the topic settings that the settings file has set, kept in the store.

Guarantees: the notes survive a restart, one key for each topic (`declared/<name>`, see `keys`). A
note is written before the settings of a topic are changed, with the old and the new value of each,
and again afterwards. So either value, after a crash or a failure, is known to be from the file. A
created topic is noted only afterwards, because it has no id before. After a crash in between, its
settings count as set by a client until they are declared again. It decides nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from penstock.cluster import values
from penstock.cluster.controller import GuardedWrites
from penstock.cluster.keys import DEFAULT_ROOT, Keys
from penstock.cluster.link.change_values import ChangeBase, Decision
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Delete, MetadataStore, Operation, Put
from penstock.cluster.values import SetByFile
from penstock.core.limits import STORE_OPERATIONS_MAX


class DeclarationMemory:
    """The settings of each topic that the settings file has set."""

    def __init__(
        self,
        store: MetadataStore,
        root: str = DEFAULT_ROOT,
        *,
        metadata: MetadataService | None = None,
    ) -> None:
        """`metadata` writes for a registered broker: only while its registration is valid."""
        self._store = store
        self._keys = Keys(root if metadata is None else metadata.root)
        self._metadata = metadata

    async def recall(self) -> dict[str, SetByFile]:
        """Return all notes, by topic name."""
        prefix = self._keys.declarations()
        snapshot = await self._store.read_prefix(prefix)
        return {
            pair.key.removeprefix(prefix): values.read_declared(pair.value)
            for pair in snapshot.values
        }

    async def keep(self, changed: Mapping[str, SetByFile | None]) -> None:
        """Store these notes; None deletes the note of a topic."""
        operations: list[Operation] = []
        for name, given in changed.items():
            key = self._keys.declaration(name)
            operations.append(
                Delete(key) if given is None else Put(key, values.write_declared(given))
            )
        if self._metadata is not None:
            await self._metadata.carry_out("note declared topics", partial(_decide, operations))
            return
        for few in _portions(operations):
            await self._store.transact((), few)


async def _decide(operations: Sequence[Operation], base: ChangeBase) -> Decision[None]:
    writes = [GuardedWrites(base.guards, few) for few in _portions(operations)]
    return Decision(writes, lambda: None)


def _portions(operations: Sequence[Operation]) -> Iterator[tuple[Operation, ...]]:
    for start in range(0, len(operations), STORE_OPERATIONS_MAX):
        yield tuple(operations[start : start + STORE_OPERATIONS_MAX])
