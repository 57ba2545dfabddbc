"""The arguments of a handler: `BrokerServices`, created once, and a `RequestContext` per request.

A handler reaches everything through these two, so that a reader sees its dependencies and a test
can pass fakes. Nothing in this module decides anything.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from penstock.broker.access import Access, DecisionLog
from penstock.broker.fetch_sessions import FetchSessionCache
from penstock.broker.pacing.budget import MemoryBudget
from penstock.broker.pacing.turns import TurnBudget
from penstock.broker.pacing.wide_permits import WidePermit
from penstock.broker.peer import UNKNOWN_PEER, Peer
from penstock.broker.ports import (
    AclAdministration,
    BrokerAdministration,
    ColdReader,
    Coordinators,
    Elections,
    GroupAdministration,
    HeavyWork,
    LogDirectories,
    Metadata,
    ProducerIds,
    QuotaAdministration,
    RecordDeletion,
    Tasks,
    TopicAdministration,
    UserAdministration,
)
from penstock.broker.quotas.meter import RequestMeter
from penstock.broker.quotas.quotas import Quotas
from penstock.broker.refusals.refused_batches import RefusedBatches
from penstock.broker.refusals.refused_sequences import RefusedSequences
from penstock.broker.transaction_turns import TransactionTurns
from penstock.core.cancellation import Cancellation
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.limits import UNSENT_ANSWER_BYTES_MAX
from penstock.core.settings.current_settings import CurrentSettings
from penstock.core.settings.tree import Settings
from penstock.replication.manager import ReplicaManager
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from penstock.security.audit import CHANGES, NAMED_MAX

if TYPE_CHECKING:
    from penstock.broker.share_sessions.share_ports import Shares

Changed = TypeVar("Changed")

TOPIC_ID_VERSION: Final = 13
"""Starting at this version of Produce and of Fetch, topics are named by their id."""


class VersionRange(NamedTuple):
    """Versions of an API that are served, and the lowest one that ApiVersions names."""

    lowest: int
    highest: int
    lowest_advertised: int


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """Everything that handlers may use."""

    current: CurrentSettings
    node_id: int
    clock: Clock
    metadata: Metadata
    topics: TopicAdministration
    groups: GroupAdministration
    brokers: BrokerAdministration
    quota_administration: QuotaAdministration
    producer_ids: ProducerIds
    replicas: ReplicaManager
    cold_reader: ColdReader
    heavy_work: HeavyWork
    record_deletion: RecordDeletion
    log_directories: LogDirectories
    coordinators: Coordinators
    fetch_sessions: FetchSessionCache
    tasks: Tasks
    turns: TurnBudget
    api_ranges: Mapping[int, VersionRange]
    accepts_produce: Callable[[], PenstockError | None]
    """None when the disk has room, else the reason why produce is refused."""
    unsent_answers: MemoryBudget = field(
        default_factory=lambda: MemoryBudget(UNSENT_ANSWER_BYTES_MAX)
    )
    """Kept by the listener: how much of the answers has not left yet."""
    transaction_turns: TransactionTurns = field(default_factory=TransactionTurns)
    quotas: Quotas = field(default_factory=Quotas)
    refused_batches: RefusedBatches = field(default_factory=RefusedBatches)
    refused_sequences: RefusedSequences = field(default_factory=RefusedSequences)
    access: Access | None = None
    """None: there is no authorizer, and each client may do everything."""
    acls: AclAdministration | None = None
    """None only without an authorizer."""
    users: UserAdministration | None = None
    """None only in tests that change no users."""
    audit: DecisionLog | None = None
    """Records changes of rules and users, with an authorizer or without; None only in tests."""
    elections: Elections | None = None
    """None for a broker that is alone: its replicas are the only ones, and lead."""
    shares: "Shares | None" = None
    """None only in tests without share groups."""
    records_all_changes: bool = False
    """Whether `audit` records other changes too, without an authorizer: clients have identities."""

    @property
    def settings(self) -> Settings:
        """The settings in force; a reload may replace them."""
        return self.current.settings


class RequestContext(NamedTuple):
    """One request's surroundings. Handlers seldom need the version: the codec has dealt with it."""

    services: BrokerServices
    api_version: int
    client_id: str | None
    is_version_unsupported: bool
    peer: Peer = UNKNOWN_PEER
    """The client: its address and its identity."""
    meter: RequestMeter | None = None
    """Counts the costs of the request, while any quota is set."""
    client: Cancellation | None = None
    """Cancelled when the connection is gone: reads for its requests end early."""
    permit: WidePermit | None = None
    """Of a wide request; released with the answer, or earlier when it begins to wait."""
    api_key: int = -1

    def allows(
        self,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Whether the client may; pass `is_logged=False` for a check that only hides something."""
        access = self.services.access
        if access is None:
            if is_logged and CHANGES >> operation & 1:
                self.record_change(operation, resource_type, name)
            return True
        return access.allows(
            self.peer, self.api_key, operation, resource_type, name, is_logged=is_logged
        )

    def allows_cluster(self, operation: Operation, *, is_logged: bool = True) -> bool:
        """Whether the client may do this to the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, is_logged=is_logged)

    def record_change(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Log a change of a resource that a permission for the cluster allows."""
        services = self.services
        if services.access is not None:
            services.access.record_change(self.peer, self.api_key, operation, resource_type, name)
        elif services.audit is not None and services.records_all_changes:
            services.audit.allowed(self.peer, self.api_key, operation, resource_type, name)

    def record_changes(
        self, changed: Sequence[Changed], values_of: Callable[[Changed], Mapping[str, str]]
    ) -> None:
        """Log the rules or users that were changed: the first ones, and the number of others."""
        audit = self.services.audit
        if audit is not None and changed:
            named = [values_of(one) for one in changed[:NAMED_MAX]]
            audit.changed(self.peer, self.api_key, named, len(changed) - len(named))

    def allows_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the client may do this to some resource of the type."""
        access = self.services.access
        return access is None or access.allows_any(
            self.peer, self.api_key, operation, resource_type
        )

    def operations(self, resource_type: ResourceType, name: str, bits: int) -> int:
        """Return those operations of a bit set that the client may do."""
        access = self.services.access
        return bits if access is None else access.operations(self.peer, resource_type, name, bits)
