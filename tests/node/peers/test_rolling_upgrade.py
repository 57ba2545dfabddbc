"""Brokers are replaced by newer ones, one after the other, under load; then the level is raised."""

import asyncio
import json

import pytest

from penstock.client.transport.call import Call
from penstock.client.transport.connection import AsyncConnection
from penstock.cluster.features.levels import CLUSTER_FEATURE, SUPPORTED, FeatureRange, Ranges
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Put
from penstock.core.errors import ConfigError, PenstockError
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from penstock.records.builder import BatchBuilder
from penstock.records.record import Record
from tests.node.peers.test_replication import TOPIC, logs, produce
from tests.node.peers.three_brokers import IDS, ThreeBrokers, run, until

NEWER: Ranges = (FeatureRange(CLUSTER_FEATURE, 1, 2),)
SAFE_DOWNGRADE = 2


class Load:
    """A producer with acks=all that tries again until a record is acknowledged."""

    def __init__(self, brokers: ThreeBrokers) -> None:
        self._brokers = brokers
        self._connection: AsyncConnection | None = None
        self._leader = -1
        self.acknowledged: list[bytes] = []
        self._stops = False

    async def run(self) -> None:
        while not self._stops:
            value = b"record %d." % len(self.acknowledged)
            try:
                if await self._produce(value):
                    self.acknowledged.append(value)
            except (PenstockError, OSError, KeyError):
                await self._disconnect()
            await asyncio.sleep(0.001)
        await self._disconnect()

    async def _produce(self, value: bytes) -> bool:
        leader = self._brokers.leader(TOPIC, 0)
        if leader != self._leader:
            await self._disconnect()
        if self._connection is None:
            self._connection, self._leader = await self._brokers.connect(leader), leader
        call = Call(produce_request(value), ProduceResponse, error_of, version_max=12)
        return await self._connection.carry(call) is ErrorCode.NONE

    async def _disconnect(self) -> None:
        connection, self._connection, self._leader = self._connection, None, -1
        if connection is not None:
            await connection.close()

    async def more(self) -> None:
        """Wait until more records are acknowledged."""
        seen = len(self.acknowledged)
        await until(lambda: len(self.acknowledged) > seen + 5)

    def stop(self) -> None:
        self._stops = True


def produce_request(value: bytes) -> ProduceRequest:
    """Return the request for one record, with acks=all."""
    builder = BatchBuilder()
    builder.append(Record(None, value, (), 0))
    data = PartitionProduceData(index=0, records=builder.build())
    topic = TopicProduceData(name=TOPIC, partition_data=(data,))
    return ProduceRequest(acks=-1, timeout_ms=2_000, topic_data=(topic,))


def error_of(answer: ProduceResponse) -> ErrorCode:
    return answer.responses[0].partition_responses[0].error_code


async def features(brokers: ThreeBrokers, broker_id: int, version: int = 4) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return await brokers.ask(broker_id, request, ApiVersionsResponse, version)


async def update(
    brokers: ThreeBrokers, broker_id: int, level: int, *, kind: int = 1, validate_only: bool = False
) -> UpdateFeaturesResponse:
    change = FeatureUpdateKey(feature=CLUSTER_FEATURE, max_version_level=level, upgrade_type=kind)
    request = UpdateFeaturesRequest(feature_updates=(change,), validate_only=validate_only)
    return await brokers.ask(broker_id, request, UpdateFeaturesResponse, 2)


async def upgrade(brokers: ThreeBrokers, broker_id: int, load: Load) -> None:
    """Replace one broker, and wait until it is in sync."""
    await brokers.stop(broker_id)
    await load.more()
    await brokers.start_one(broker_id)
    await until(lambda: set(brokers.topic(TOPIC).partitions[0].isr) == set(IDS))
    await load.more()


def test_a_rolling_upgrade_under_load() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1)
        load = Load(brokers)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(load.run())
            await load.more()
            brokers.features = NEWER
            for broker_id in IDS:
                refused = await update(brokers, next(iter(brokers.servers)), 2)
                assert refused.error_code is ErrorCode.INVALID_UPDATE_VERSION
                await upgrade(brokers, broker_id, load)
                # Nothing changes by itself: a broker of the earlier version may return.
                assert brokers.image.features.levels == {CLUSTER_FEATURE: 1}
            raised = await update(brokers, 2, 2)
            assert raised.error_code is ErrorCode.NONE, raised.error_message
            await load.more()
            load.stop()
        for broker_id in IDS:
            answer = await features(brokers, broker_id)
            (used,) = (one for one in answer.finalized_features if one.name == CLUSTER_FEATURE)
            assert (used.min_version_level, used.max_version_level) == (2, 2)
        await until(lambda: len(set(logs(brokers))) == 1)
        assert all(value in logs(brokers)[0] for value in load.acknowledged)
        # The earlier version does not start any more.
        brokers.features = SUPPORTED
        await brokers.stop(3)
        with pytest.raises(ConfigError, match=r"penstock.cluster at level 2.*newer Penstock"):
            await brokers.start_one(3)

    run(act)


def test_clients_see_the_levels() -> None:
    async def act(brokers: ThreeBrokers) -> None:
        answer = await features(brokers, 1)
        supported = {
            one.name: (one.min_version, one.max_version) for one in answer.supported_features
        }
        assert supported == {
            "group.version": (0, 1),
            "share.version": (0, 1),
            "transaction.version": (0, 2),
            CLUSTER_FEATURE: (1, 1),
        }
        used = {one.name: one.max_version_level for one in answer.finalized_features}
        assert used == {
            "group.version": 1,
            "share.version": 1,
            "transaction.version": 2,
            CLUSTER_FEATURE: 1,
        }
        before = answer.finalized_features_epoch
        assert before > 0
        # Version 3 has no place for a lowest level of 0 (KIP-584).
        older = await features(brokers, 1, version=3)
        assert [one.name for one in older.supported_features] == [CLUSTER_FEATURE]
        brokers.features = NEWER
        for broker_id in IDS:
            await brokers.stop(broker_id)
            await brokers.start_one(broker_id)
        assert (await update(brokers, 1, 2, validate_only=True)).error_code is ErrorCode.NONE
        assert (await features(brokers, 2)).finalized_features_epoch == before
        assert (await update(brokers, 1, 2)).error_code is ErrorCode.NONE
        await until(
            lambda: all(
                brokers.served(one).metadata.image.features.revision > before for one in IDS
            )
        )
        assert (await features(brokers, 2)).finalized_features_epoch > before

    run(act)


@pytest.mark.parametrize(
    ("level", "kind", "text"),
    [
        (2, 1, "Local controller 1 only supports versions 1-1"),
        (0, 1, "Can't downgrade the version of this feature without"),
        (0, SAFE_DOWNGRADE, "cannot be set to a lower one"),
    ],
)
def test_levels_that_are_refused(level: int, kind: int, text: str) -> None:
    async def act(brokers: ThreeBrokers) -> None:
        answer = await update(brokers, 1, level, kind=kind)
        assert answer.error_code is ErrorCode.INVALID_UPDATE_VERSION
        assert text in (answer.error_message or "")

    run(act)


def test_a_value_of_a_newer_version_does_not_end_a_broker() -> None:
    """The broker keeps its last state of the key, reports a critical problem, and serves on."""

    async def act(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1)
        assert await produce(brokers, b"before") is ErrorCode.NONE
        key = Keys().topic(TOPIC)
        (pair,) = (await brokers.store.read(key)).values
        newer = json.dumps({**json.loads(pair.value), "v": 9}).encode()
        await brokers.store.transact((), (Put(key, newer),))
        for broker_id in IDS:
            metadata = brokers.served(broker_id).metadata
            await until(lambda metadata=metadata: bool(metadata.problems))  # type: ignore[misc]
            assert "version 9" in metadata.problems[0]
        assert await produce(brokers, b"after") is ErrorCode.NONE
        await until(lambda: all(b"after" in one for one in logs(brokers)))
        await brokers.store.transact((), (Put(key, pair.value),))
        await until(lambda: not brokers.served(1).metadata.problems)

    run(act)
