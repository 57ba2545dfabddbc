"""Carries out the effect of share shards: the deletion of records that newer snapshots replace.

The new start of the log is on the disk before the effect ends; followers get it with their next
fetch. It does NOT decide which records are needed.
"""

from penstock.coordinator.shares.log_effects import DeleteBelow
from penstock.core.errors import NotLeaderError
from penstock.core.types import SHARE_STATE_TOPIC
from penstock.replication.manager import ReplicaManager
from penstock.storage.service import StorageService


class ShareEffects:
    """`coordinator.ports.Effects` of share shards."""

    def __init__(self, replicas: ReplicaManager, storage: StorageService) -> None:
        self._replicas = replicas
        self._storage = storage

    async def perform(self, effect: object) -> object:
        """Carry out an effect; raise a `PenstockError` if it fails."""
        assert isinstance(effect, DeleteBelow), f"unknown effect {effect!r}"
        partition = self._replicas.find(SHARE_STATE_TOPIC, effect.partition)
        if partition is None or not partition.state.is_leader:
            raise NotLeaderError(f"{SHARE_STATE_TOPIC}-{effect.partition} is not served here")
        assert effect.offset <= partition.state.high_watermark, "a needed record is committed"
        (error,) = await self._storage.advance_starts([(partition.log, effect.offset)])
        if error is not None:
            raise error
        return None
