"""`NodeLeases`: implements `admin.ports.LeaseDesk` on this node.

Guarantees: a lease has only segments of partitions that this broker leads, up to their last stable
offset, of topics that the caller may read: the rule of Fetch. A denial is answered as for Fetch,
and logged. All methods belong to the event loop.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from penstock.admin.models.lease_models import (
    AbortedSpan,
    EpochStart,
    GrantedLease,
    LeasedFile,
    LeasedLog,
    LeaseEntry,
    NewLease,
    SkippedPartition,
)
from penstock.admin.ports import Caller
from penstock.admin.problems import refused
from penstock.broker.peer import Peer
from penstock.cluster.service import MetadataService
from penstock.core.errors import (
    BrokerUnreachableError,
    LogBusyError,
    PenstockError,
    StorageBusyError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import INTERNAL_TOPICS, TopicPartition
from penstock.node.security.certificates_in_use import ADMIN
from penstock.node.security.node_security import NodeSecurity
from penstock.replication.hosted_partition import HostedPartition
from penstock.replication.manager import ReplicaManager
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType
from penstock.storage.disk.data_directory import format_topic_id
from penstock.storage.leases.lease_book import Lease
from penstock.storage.leases.lease_links import LeasedPartition
from penstock.storage.leases.lease_rules import LeaseUnavailableError, LeaseWish, SkippedCode
from penstock.storage.service import StorageService

GRANT: Final = "GRANT_LEASE"
"""The name of the operation in the audit log."""


class Running(Protocol):
    """The parts of a running broker; `node.admin_parts.Served` has them."""

    @property
    def security(self) -> NodeSecurity:
        """Identity and access."""
        ...

    @property
    def metadata(self) -> MetadataService:
        """The metadata."""
        ...

    @property
    def storage(self) -> StorageService:
        """The logs."""
        ...

    @property
    def replicas(self) -> ReplicaManager:
        """The partitions."""
        ...


class NodeLeases:
    """`admin.ports.LeaseDesk`."""

    def __init__(self, served: Callable[[], Running | None], *, has_files: bool) -> None:
        """`served` returns None until the broker is started; `has_files`: logs are on a disk."""
        self._served = served
        self._has_files = has_files

    async def grant(self, caller: Caller, wanted: NewLease) -> GrantedLease:
        """Lease sealed segments of a topic that the caller may read."""
        running = self._running()
        self._require_read(running, caller, wanted.topic)
        if not self._has_files:
            raise refused(
                422,
                "Refused",
                "The broker keeps its logs in memory: there are no files to lease.",
                'Read through Fetch, or set node.storage = "disk".',
            )
        hosted, skipped = self._hosted(running, wanted)
        topic_id = running.metadata.image.topics[wanted.topic].id
        about = GrantedLease(
            id="",
            cluster_id=running.metadata.image.cluster_id,
            topic=wanted.topic,
            topic_id=format_topic_id(topic_id),
            expires_at_ms=0,
            directory="",
            partitions=[],
            skipped=skipped,
        )
        if not hosted:
            return about
        wishes = [
            LeaseWish(
                one.name,
                asked.from_offset,
                asked.until_offset,
                partial(_stable_offset, one),
                topic_id,
            )
            for asked in wanted.partitions
            if (one := hosted.get(asked.partition)) is not None
        ]
        lease = await running.storage.grant_lease(wishes, wanted.seconds, str(caller.principal))
        return _answer(about, lease, hosted)

    def leases(self, caller: Caller) -> Sequence[LeaseEntry]:
        """Return the leases of the caller; all for a caller that may describe the cluster."""
        running = self._running()
        sees_all = self._allows(running, caller, Operation.DESCRIBE)
        return [
            LeaseEntry(
                id=note.lease_id,
                topic=note.topic,
                principal=note.principal,
                created_at_ms=note.created_ms,
                expires_at_ms=note.expires_ms,
                segments=note.segment_count,
                size_bytes=note.size_bytes,
            )
            for note in running.storage.leases.notes()
            if sees_all or note.principal == str(caller.principal)
        ]

    async def release(self, caller: Caller, lease: str) -> bool:
        """End a lease; False if there is none that the caller may end."""
        running = self._running()
        book = running.storage.leases
        note = next((one for one in book.notes() if one.lease_id == lease), None)
        if note is None:
            return False
        is_own = note.principal == str(caller.principal)
        if not is_own and not self._allows(running, caller, Operation.ALTER):
            return False
        return await book.release(lease)

    def is_temporary(self, error: PenstockError) -> bool:
        """Whether the same request may succeed later."""
        return isinstance(error, LeaseUnavailableError | LogBusyError | StorageBusyError)

    def _require_read(self, running: Running, caller: Caller, topic: str) -> None:
        """Raise unless the caller may read the topic; internal topics are not leased."""
        security = running.security
        authorizer = security.authorizer
        if authorizer is not None and not authorizer.allows(
            caller.principal, caller.address, Operation.READ, ResourceType.TOPIC, topic
        ):
            peer = Peer(caller.address, caller.principal, ADMIN, caller.mechanism)
            security.audit.denied_over_http(peer, GRANT, Operation.READ, ResourceType.TOPIC, topic)
            raise refused(
                403,
                "Not allowed",
                f"{caller.principal} may not read topic {topic}.",
                f"Allow it: `penstock acl add --principal {caller.principal} --operation read "
                f"--topic {topic}`.",
            )
        if topic in INTERNAL_TOPICS or topic not in running.metadata.image.topics:
            raise UnknownTopicOrPartitionError(
                f"there is no topic {topic}", hint="GET /api/v1/topics lists the topics."
            )

    def _hosted(
        self, running: Running, wanted: NewLease
    ) -> tuple[dict[int, HostedPartition], list[SkippedPartition]]:
        """Return the wanted partitions that this broker leads, and the other ones."""
        hosted: dict[int, HostedPartition] = {}
        skipped = []
        for asked in wanted.partitions:
            name = TopicPartition(wanted.topic, asked.partition)
            if asked.partition in hosted:
                raise refused(
                    422, "Refused", f"{name} is wanted twice.", "Name each partition once."
                )
            reason = ""
            try:
                partition = running.replicas.partition(name)
                partition.require_readable()
                if not partition.state.is_leader:
                    reason = "another broker leads it"
            except PenstockError as error:
                reason = str(error)
            if reason:
                skipped.append(
                    SkippedPartition(
                        partition=asked.partition, code=SkippedCode.NOT_LED.name, reason=reason
                    )
                )
            else:
                hosted[asked.partition] = partition
        return hosted, skipped

    def _allows(self, running: Running, caller: Caller, operation: Operation) -> bool:
        authorizer = running.security.authorizer
        return authorizer is None or authorizer.allows(
            caller.principal, caller.address, operation, ResourceType.CLUSTER, CLUSTER_NAME
        )

    def _running(self) -> Running:
        served = self._served()
        if served is None:
            raise BrokerUnreachableError("the broker is starting and grants no leases yet.")
        return served


def _answer(about: GrantedLease, lease: Lease, hosted: dict[int, HostedPartition]) -> GrantedLease:
    skipped = [
        SkippedPartition(partition=number, code=code.name, reason=code.value)
        for number, code in lease.skipped
    ]
    changes: dict[str, object] = {"skipped": [*about.skipped, *skipped]}
    if lease.partitions:
        changes |= {
            "id": lease.note.lease_id,
            "expires_at_ms": lease.note.expires_ms,
            "directory": os.path.abspath(lease.path),
            "partitions": [_leased_log(one, hosted[one.partition]) for one in lease.partitions],
        }
    return about.model_copy(update=changes)


def _stable_offset(hosted: HostedPartition) -> int:
    """Return the last stable offset; without leadership it is not known."""
    return hosted.last_stable_offset if hosted.state.is_leader else 0


def _leased_log(leased: LeasedPartition, hosted: HostedPartition) -> LeasedLog:
    return LeasedLog(
        partition=leased.partition,
        leader_epoch=hosted.state.leader_epoch,
        log_start_offset=leased.log_start_offset,
        last_stable_offset=leased.stable_offset,
        segments=[LeasedFile(**one._asdict()) for one in leased.segments],
        epochs=[
            EpochStart(epoch=one.epoch, start_offset=one.start_offset) for one in leased.epochs
        ],
        aborted=[
            AbortedSpan(
                producer_id=one.producer_id,
                first_offset=one.first_offset,
                last_offset=one.last_offset,
            )
            for one in leased.aborted
        ],
    )
