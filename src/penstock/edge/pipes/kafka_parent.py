"""`KafkaParent`: a parent over Kafka's protocol, Penstock or Apache Kafka 3.1 and later.

It has one connection to each leader for fetches, which wait at the leader, and another for all
other calls. It retries nothing: `edge.pipes.pipe_runner` begins again. It reads as an ordinary
consumer does: the parent needs no setting, and the user of the pipe needs READ and DESCRIBE on the
topics, and DESCRIBE on the groups.
"""

from collections.abc import Collection, Mapping
from uuid import UUID

from penstock.client import calls
from penstock.client.async_cluster import AsyncCluster
from penstock.client.coordinators import CoordinatorKind, find
from penstock.client.epoch_ends import ask_epoch_ends
from penstock.client.groups import group_calls
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import raise_error
from penstock.client.transport.connection import AsyncConnection, connect
from penstock.client.transport.options import ClientOptions
from penstock.core.types import INTERNAL_TOPICS, TopicPartition
from penstock.edge.pipes.common_end import BatchMark
from penstock.edge.pipes.down_pipe import NO_EPOCH, NO_OFFSET, EpochEnd, ParentLog
from penstock.edge.pipes.parent_calls import fetch_mirrors, first_mark
from penstock.edge.pipes.ports import (
    CommittedOffset,
    FetchAt,
    Fetched,
    FetchLimits,
    ParentPartition,
    ParentTopic,
)

CALL_SECONDS_MAX = 10.0
"""Longest wait for an answer, besides the time that a fetch waits at the leader."""
_TOPIC_SETTING = 1
"""The source of a setting that a topic overrides, in DescribeConfigs."""


class KafkaParent:
    """`edge.pipes.ports.Parent`."""

    def __init__(self, options: ClientOptions, client_id: str) -> None:
        async def opened(address: Address) -> AsyncConnection:
            return await connect(
                address,
                timeout_seconds=CALL_SECONDS_MAX,
                client_id=client_id,
                security=options.security,
            )

        bootstrap = options.bootstrap
        self._control = AsyncCluster(bootstrap, opened, timeout_seconds=CALL_SECONDS_MAX)
        self._fetches = AsyncCluster(bootstrap, opened, timeout_seconds=CALL_SECONDS_MAX)

    async def topics(self, names: Collection[str] | None) -> Mapping[str, ParentTopic]:
        """Return these topics, or all but the internal ones."""
        described = await self._control.describe(names)
        shown = [
            one
            for one in described.values()
            if not one.is_internal and one.name not in INTERNAL_TOPICS
        ]
        led = [
            TopicPartition(one.name, index)
            for one in shown
            for index, partition in one.partitions.items()
            if partition.leader_id >= 0
        ]
        leaders = await self._control.leaders(led)
        return {
            one.name: ParentTopic(
                one.name,
                one.topic_id,
                tuple(
                    ParentPartition(leaders[at].address if at in leaders else None, epoch)
                    for index, (_, epoch) in one.partitions.items()
                    for at in [TopicPartition(one.name, index)]
                ),
            )
            for one in shown
        }

    async def settings(self, names: Collection[str]) -> Mapping[str, Mapping[str, str]]:
        """Return the settings that these topics override."""
        if not names:
            return {}
        call = calls.describe_settings(calls.TOPIC_RESOURCE, tuple(names))
        found = await self._control.anywhere(call)
        settings: dict[str, Mapping[str, str]] = {}
        for name in names:
            raise_error(found[name].error_code, found[name].error_message, name)
            settings[name] = {
                one.name: one.value
                for one in found[name].configs
                if one.config_source == _TOPIC_SETTING and one.value is not None
            }
        return settings

    async def log_ends(
        self, asked: Mapping[TopicPartition, tuple[UUID, int, int]]
    ) -> Mapping[TopicPartition, ParentLog]:
        """Return the ends of logs; asked are topic id, leader epoch, and the epoch to find."""
        cluster = self._control
        # The topic ids of this moment: a topic may have been recreated since the last look.
        described = await cluster.describe({at.topic for at in asked})
        there = {at: one for at, one in asked.items() if at.topic in described}
        starts = await cluster.look_up_offsets(
            dict.fromkeys(there, calls.EARLIEST_TIMESTAMP), is_read_committed=False
        )
        ends = await cluster.look_up_offsets(
            dict.fromkeys(there, calls.LATEST_TIMESTAMP), is_read_committed=False
        )
        epochs = await self._epoch_ends({at: one[2] for at, one in there.items()})
        unknown = EpochEnd(NO_EPOCH, NO_OFFSET)
        return {
            at: ParentLog(
                described[at.topic].topic_id,
                starts[at].offset,
                ends[at].offset,
                epochs.get(at, unknown),
            )
            for at in there
        }

    async def _epoch_ends(
        self, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd]:
        known = {at: epoch for at, epoch in epochs.items() if epoch > NO_EPOCH}
        leaders = await self._control.leaders(known)
        by_leader: dict[Address, dict[TopicPartition, tuple[int, int]]] = {}
        for at, epoch in known.items():
            leader = leaders[at]
            by_leader.setdefault(leader.address, {})[at] = (epoch, leader.leader_epoch)
        found: dict[TopicPartition, EpochEnd] = {}
        for address, some in by_leader.items():
            for at, answer in (await self._control.at(address, ask_epoch_ends(some))).items():
                raise_error(answer.error_code, None, str(at))
                found[at] = EpochEnd(answer.leader_epoch, answer.end_offset)
        return found

    async def fetch(
        self, leader: Address, places: Mapping[TopicPartition, FetchAt], limits: FetchLimits
    ) -> Mapping[TopicPartition, Fetched]:
        """Fetch from one leader; partitions without news may be absent."""
        return await self._fetches.at(leader, fetch_mirrors(places, limits))

    async def batch_at(
        self, leader: Address, at: TopicPartition, place: FetchAt
    ) -> BatchMark | None:
        """Return the first batch that ends at or after the place."""
        call = fetch_mirrors({at: place}, FetchLimits(wait_ms=0, bytes_max=1))
        answer = (await self._control.at(leader, call)).get(at)
        if answer is None:
            return None
        raise_error(answer.code, None, str(at))
        return first_mark(answer.records)

    async def groups(self) -> Collection[str]:
        """Return the names of all groups."""
        described = await self._control.anywhere(calls.describe_brokers([]))
        names: set[str] = set()
        for broker in described.brokers:
            address = Address(broker.host, broker.port)
            listed = await self._control.at(address, group_calls.list_all())
            names.update(one.group_id for one in listed)
        return names

    async def committed(self, group: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the committed offsets of a group."""
        coordinator = await self._control.anywhere(find(CoordinatorKind.GROUP, group))
        call = group_calls.fetch_offsets(group)
        found = await self._control.at(coordinator.address, call)
        return {
            at: CommittedOffset(one.offset, one.leader_epoch, one.metadata)
            for at, one in found.items()
        }

    async def close(self) -> None:
        """Close all connections."""
        await self._control.close()
        await self._fetches.close()
