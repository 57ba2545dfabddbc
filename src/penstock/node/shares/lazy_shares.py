"""`NodeShares`: share groups of this broker, which cost nothing before the first member.

The code of share groups is imported, and its objects are created, by the first ShareFetch or
ShareAcknowledge.
"""

from typing import TYPE_CHECKING

from penstock.node.adapters import ColdReads, GroupTasks
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.node.foundation import Foundation
from penstock.replication.manager import ReplicaManager
from penstock.storage.service import StorageService

if TYPE_CHECKING:
    from penstock.node.shares.share_partitions import SharePartitions


class NodeShares:
    """Creates the share-partitions of this broker at their first use."""

    def __init__(
        self,
        ground: Foundation,
        replicas: ReplicaManager,
        storage: StorageService,
        coordinators: NodeCoordinators,
    ) -> None:
        self._ground = ground
        self._replicas = replicas
        self._storage = storage
        self._coordinators = coordinators
        self._opened: SharePartitions | None = None

    def get(self) -> "SharePartitions":
        """Return the share-partitions of this broker."""
        if self._opened is None:
            from penstock.broker.share_state.share_session_table import ShareSessions
            from penstock.node.shares.share_partitions import GroupDeliveries, SharePartitions
            from penstock.node.shares.state_calls import StateCalls

            ground, current = self._ground, self._ground.live.current
            calls = StateCalls(
                self._coordinators.share_states,
                ColdReads(self._replicas, self._storage),
                ground.clock,
                GroupTasks(ground.tasks),
            )
            deliveries = GroupDeliveries(
                lambda: ground.metadata.image, lambda: current.settings.groups
            )
            sessions = ShareSessions(current.settings.groups.share_sessions_max)
            self._opened = SharePartitions(calls, self._replicas, deliveries, sessions)
        return self._opened

    def stop(self) -> None:
        """Cancel all timers: the broker stops."""
        if self._opened is not None:
            self._opened.stop()
