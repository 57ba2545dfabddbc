"""`NodePipes`: implements `admin.ports.PipeDesk` on this node.

The access rules of the broker decide who may see and change pipes; without an authorizer each
caller may. A list on a broker that never had a pipe is empty and imports nothing.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, Protocol

from penstock.admin.pipe_models import (
    PARTITIONS_SHOWN_MAX,
    NewPipe,
    PipeDetail,
    PipeEntry,
    PipePartition,
)
from penstock.admin.ports import Caller, RefreshDesk
from penstock.broker.peer import Peer
from penstock.core.errors import BrokerUnreachableError
from penstock.core.settings.pipe_declarations import pipe_of
from penstock.node.pipes.pipe_door import PipeDoor
from penstock.node.security.certificates_in_use import ADMIN
from penstock.node.security.node_security import NodeSecurity
from penstock.security.acls.values import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from penstock.edge.pipes.pipe_status import PipeStatus
    from penstock.node.pipes.pipe_book import PipeBook

DESCRIBE: Final = "DESCRIBE_PIPES"
ALTER: Final = "ALTER_PIPES"
"""The names of both operations in the audit log."""


class Running(Protocol):
    """The parts of a running broker; `node.admin_parts.Served` has them."""

    @property
    def security(self) -> NodeSecurity:
        """Identity and access."""
        ...

    @property
    def pipes(self) -> PipeDoor:
        """The pipes."""
        ...


class NodePipes:
    """`admin.ports.PipeDesk`."""

    def __init__(self, served: Callable[[], Running | None], refreshes: RefreshDesk) -> None:
        """`served` returns None until the broker is started."""
        self._served = served
        self._refreshes = refreshes

    def allows(self, caller: Caller, operation: Operation) -> bool:
        """Whether access rules allow the operation on the cluster to the caller."""
        security = self._running().security
        authorizer = security.authorizer
        if authorizer is None or authorizer.allows(
            caller.principal, caller.address, operation, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            return True
        peer = Peer(caller.address, caller.principal, ADMIN, caller.mechanism)
        api = DESCRIBE if operation is Operation.DESCRIBE else ALTER
        security.audit.denied_over_http(peer, api, operation)
        return False

    @property
    def refreshes(self) -> RefreshDesk:
        """The refreshes of mirrors and of push subscribers."""
        self._running()
        return self._refreshes

    def pipes(self) -> Sequence[PipeEntry]:
        """Return all pipes."""
        book = self._running().pipes.book
        return [] if book is None else [_entry(one) for one in book.statuses()]

    def pipe(self, name: str) -> PipeDetail:
        """Return one pipe with its partitions."""
        status = self._book().status(name)
        worst = sorted(status.partitions, key=lambda one: (not one.reason, -one.lag_records))
        return PipeDetail(
            pipe=_entry(status),
            partitions=[
                PipePartition(
                    topic=one.topic,
                    partition=one.partition,
                    phase=one.phase.value,
                    end_offset=one.end_offset,
                    lag_records=one.lag_records,
                    reason=one.reason,
                    remedy=one.remedy,
                )
                for one in worst[:PARTITIONS_SHOWN_MAX]
            ],
        )

    def create(self, wanted: NewPipe) -> PipeEntry:
        """Run a pipe until the broker stops."""
        book = self._book()
        book.create(pipe_of(wanted.model_dump()))
        return _entry(book.status(wanted.name))

    def remove(self, name: str) -> None:
        """End a pipe that is not in the settings file."""
        self._book().remove(name)

    def pause(self, name: str) -> None:
        """Pause a pipe."""
        self._book().pause(name)

    def resume(self, name: str) -> None:
        """Resume a pipe."""
        self._book().resume(name)

    async def promote(self, name: str, topics: Sequence[str]) -> list[str]:
        """Let clients write these mirrors, or all; return their names."""
        return await self._book().promote(name, topics)

    async def restore(self, name: str, topics: Sequence[str]) -> list[str]:
        """Let the pipe write these topics again, or all promoted ones; return their names."""
        return await self._book().restore(name, topics)

    def reset(
        self, name: str, topics: Sequence[str], start: Literal["earliest", "latest"]
    ) -> list[str]:
        """Send topics of an up pipe from the start or the end of their logs; return their names."""
        return self._book().reset(name, topics, start)

    def _book(self) -> "PipeBook":
        return self._running().pipes.open()

    def _running(self) -> Running:
        served = self._served()
        if served is None:
            raise BrokerUnreachableError("the broker is starting and has no pipes yet.")
        return served


def _entry(status: "PipeStatus") -> PipeEntry:
    options, health = status.options, status.health
    return PipeEntry(
        name=options.name,
        parent=options.parent,
        direction=options.direction,
        site=options.site if options.direction == "up" else "",
        topics=list(options.topics),
        groups=list(options.groups),
        health=health.state.value,
        reason=health.reason,
        remedy=health.remedy,
        is_paused=status.is_paused,
        is_in_step=status.is_in_step,
        partition_count=len(status.partitions),
        lag_records=status.lag_records,
        records=status.records,
        size_bytes=status.size_bytes,
        waiting_bytes=status.waiting_bytes,
        records_per_second=round(status.records_per_second, 1),
        bytes_per_second=round(status.bytes_per_second, 1),
        seconds_to_catch_up=status.seconds_to_catch_up,
        seconds_until_full=status.seconds_until_full,
        silent_seconds=round(status.silent_seconds, 3),
        gaps=status.gaps,
        gap_records=status.gap_records,
        cut_records=status.cut_records,
        promoted=list(status.promoted),
        busy_groups=list(status.busy_groups),
    )
