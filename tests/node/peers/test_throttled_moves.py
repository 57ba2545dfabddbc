"""A throttled move between brokers keeps its rate, on the leader's side and on the follower's."""

import asyncio

import pytest

from penstock.cluster.configs.described_configs import NO_LAYERS
from penstock.cluster.configs.setting_changes import EditKind, SettingEdit, SettingsChange
from penstock.protocol.error_codes import ErrorCode
from tests.node.peers.moving import TOPIC, has_log, let_go, move, moved, produce
from tests.node.peers.three_brokers import ThreeBrokers, run, until

RECORD_BYTES = 30_000
RECORDS = 8
RATE = 1_000_000
"""All records need 0.24 s."""


async def throttle(brokers: ThreeBrokers, side: str, rate: int) -> None:
    metadata = brokers.metadata
    edit = SettingEdit(f"{side}.replication.throttled.rate", EditKind.SET, str(rate))
    await metadata.change_broker_settings(SettingsChange("", (edit,)), lambda _: NO_LAYERS)
    edit = SettingEdit(f"{side}.replication.throttled.replicas", EditKind.SET, "*")
    await metadata.change_settings(SettingsChange(TOPIC, (edit,)))
    for served in map(brokers.served, brokers.servers):
        await until(lambda at=served: at.metadata.image.revision >= metadata.image.revision)  # type: ignore[misc]


async def fill(brokers: ThreeBrokers, partitions: int) -> None:
    """Records of several partitions: an answer with all of one is not divided."""
    await brokers.create(TOPIC, partitions, ((1,),) * partitions)
    for number in range(RECORDS):
        await produce(brokers, bytes(RECORD_BYTES), number % partitions)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_move_takes_as_long_as_the_rate_allows(side: str) -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await fill(brokers, RECORDS)
        await throttle(brokers, side, RATE)
        loop = asyncio.get_running_loop()
        began = loop.time()
        targets: dict[int, tuple[int, ...] | None] = dict.fromkeys(range(RECORDS), (2,))
        # One after the other: each copy is one answer.
        for index, target in targets.items():
            assert await move(brokers, {index: target}) == [(ErrorCode.NONE, None)]
            await moved(brokers, index, (2,))
        seconds = loop.time() - began
        # The last answer is not waited for.
        expected = (RECORDS - 1) * RECORD_BYTES / RATE
        assert seconds > 0.9 * expected

    run(body)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_pause_ends_in_time(side: str) -> None:
    """Several answers for one partition: each pause ends by itself."""

    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1,),))
        for _ in range(3):
            await produce(brokers, bytes(900_000))
        await throttle(brokers, side, 30_000_000)
        async with asyncio.timeout(4):
            assert await move(brokers, {0: (2,)}) == [(ErrorCode.NONE, None)]
            await moved(brokers, 0, (2,))

    run(body)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_higher_rate_shortens_the_pauses_from_now_on(side: str) -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1,),))
        for _ in range(3):
            await produce(brokers, bytes(900_000))
        # A pause of minutes after the first answer.
        await throttle(brokers, side, 1_000)
        async with asyncio.timeout(4):
            assert await move(brokers, {0: (2,)}) == [(ErrorCode.NONE, None)]
            await until(lambda: has_log(brokers, 2))
            await until(lambda: brokers.replica(2, TOPIC, 0).log.end_offset == 1)
            if side == "leader":
                leader = brokers.replica(1, TOPIC, 0)
                await until(lambda: len(leader.waits.replica_fetches) > 0)
            await throttle(brokers, side, 5_000_000)
            await moved(brokers, 0, (2,))

    run(body)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_deleted_limit_ends_the_pause(side: str) -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await fill(brokers, 2)
        # After the first answer, a pause of many minutes.
        await throttle(brokers, side, 100)
        targets: dict[int, tuple[int, ...] | None] = {0: (2,)}
        assert await move(brokers, targets) == [(ErrorCode.NONE, None)]
        await moved(brokers, 0, (2,))
        assert await move(brokers, {1: (2,)}) == [(ErrorCode.NONE, None)]
        await asyncio.sleep(0.05)
        assert brokers.topic(TOPIC).partitions[1].adding == (2,)
        await let_go(brokers, side)
        await moved(brokers, 1, (2,))

    run(body)


def test_replicas_in_sync_are_not_throttled() -> None:
    async def body(brokers: ThreeBrokers) -> None:
        await brokers.create(TOPIC, 1, ((1, 2, 3),))
        for side in ("leader", "follower"):
            await throttle(brokers, side, 0)
        for number in range(3):
            assert await produce(brokers, b"record") == number

    run(body)
