"""`NodeShares`: share groups of this broker, which cost nothing before the first member.

The code of share groups is imported, and its objects are created, by the first ShareFetch or
ShareAcknowledge; that of dead letters by the first letter.
"""

from typing import TYPE_CHECKING

from penstock.broker.context import BrokerServices
from penstock.node.adapters import ColdReads, GroupTasks
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.node.foundation import Foundation
from penstock.replication.manager import ReplicaManager
from penstock.storage.service import StorageService

if TYPE_CHECKING:
    from penstock.node.peers.peer_connections import PeerConnections
    from penstock.node.shares.share_dead_letters import DeadLetters
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
        self._served: tuple[BrokerServices, PeerConnections | None] | None = None

    def serve(self, services: BrokerServices, peers: "PeerConnections | None") -> None:
        """Write dead letters with these services, and over connections to other brokers."""
        self._served = (services, peers)

    @property
    def offered(self) -> "NodeShares | None":
        """Share groups for clients; None if the settings switch them off."""
        return self if self._ground.settings.groups.share_enabled else None

    @property
    def opened(self) -> "SharePartitions | None":
        """The share-partitions of this broker; None before the first member."""
        return self._opened

    @property
    def problems(self) -> tuple[str, ...]:
        """Share groups whose dead letters cannot be written, with the reasons."""
        letters = None if self._opened is None else self._opened.desk.letters
        return () if letters is None else letters.problems

    def get(self) -> "SharePartitions":
        """Return the share-partitions of this broker."""
        if self._opened is None:
            from penstock.broker.share_sessions.share_session_table import ShareSessions
            from penstock.node.shares.letter_desk import LetterDesk
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
            desk = LetterDesk(self._open_letters, GroupTasks(ground.tasks))
            self._opened = SharePartitions(calls, self._replicas, deliveries, sessions, desk)
        return self._opened

    def _open_letters(self) -> "DeadLetters":
        from penstock.node.shares.share_dead_letters import DeadLetters

        assert self._served is not None, "a broker that accepts clients"
        return DeadLetters(*self._served)

    def stop(self) -> None:
        """Cancel all timers: the broker stops."""
        if self._opened is not None:
            self._opened.stop()
