"""`DeclarationMemory`: the topic settings that the settings file has set, kept in the store.

Guarantees: the notes survive a restart, one key for each topic (`declared/<name>`, see `keys`). A
note is written before the settings of a topic are changed, with the old and the new value of each,
and again afterwards. So either value, after a crash or a failure, is known to be from the file. A
created topic is noted only afterwards, because it has no id before. After a crash in between, its
settings count as set by a client until they are declared again. It decides nothing.
"""

from collections.abc import Mapping

from penstock.cluster import values
from penstock.cluster.keys import DEFAULT_ROOT, Keys
from penstock.cluster.stores.port import Delete, MetadataStore, Operation, Put
from penstock.cluster.values import SetByFile
from penstock.core.limits import STORE_OPERATIONS_MAX


class DeclarationMemory:
    """The settings of each topic that the settings file has set."""

    def __init__(self, store: MetadataStore, root: str = DEFAULT_ROOT) -> None:
        self._store = store
        self._keys = Keys(root)

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
        for start in range(0, len(operations), STORE_OPERATIONS_MAX):
            await self._store.transact((), operations[start : start + STORE_OPERATIONS_MAX])
