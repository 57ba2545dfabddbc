"""`Served`: the parts of a running broker that its admin port reads. Values only."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.broker.connections.server import Listener
from penstock.client.transport.addresses import Address
from penstock.cluster.service import MetadataService
from penstock.node.administration.edge_sessions import EdgeSessions
from penstock.node.coordination.coordinators import NodeCoordinators
from penstock.node.metrics.limits_view import LimitsView
from penstock.node.pipes.pipe_door import PipeDoor
from penstock.node.security.node_security import NodeSecurity
from penstock.node.settings.declared_topics import DeclaredTopics
from penstock.node.settings.live_settings import LiveSettings
from penstock.node.settings.settings_reload import SettingsReload
from penstock.replication.manager import ReplicaManager
from penstock.storage.service import StorageService

if TYPE_CHECKING:
    from penstock.broker.share_sessions.share_ports import Shares


@dataclass(frozen=True, slots=True)
class Served:
    """The parts of a broker that serves clients."""

    live: LiveSettings
    metadata: MetadataService
    storage: StorageService
    replicas: ReplicaManager
    coordinators: NodeCoordinators
    listener: Listener
    limits: LimitsView
    advertised: Address
    declared: DeclaredTopics
    reload: SettingsReload | None
    security: NodeSecurity
    pipes: PipeDoor
    edge_sessions: EdgeSessions
    shares: "Shares | None"
