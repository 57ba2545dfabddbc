"""Guards of mirrors: markers, answers after a promotion, epochs, restored compacted topics."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from penstock.cluster.link.change_values import ChangeBase, Decision
from penstock.cluster.mirrors import mirror_changes
from penstock.core.errors import PolicyViolationError
from penstock.core.types import TopicPartition
from penstock.node.pipes.pipe_book import PipeBook
from penstock.node.server import BrokerServer
from penstock.replication.manager import TransactionEnd
from penstock.testing import Broker
from tests.node.pipes.pipe_scene import (
    TOPIC,
    Operator,
    child_settings,
    client_of,
    down_pipe,
    equal,
    stored,
    until,
)

AT = TopicPartition(TOPIC, 0)


@pytest.fixture
def parent() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic(TOPIC, configs={"cleanup.policy": "compact"})
        for number in range(5):
            running.produce(TOPIC, f"v{number}", key=f"k{number}")
        yield running


@asynccontextmanager
async def child_in_loop(parent: Broker) -> AsyncIterator[tuple[BrokerServer, PipeBook]]:
    """Run a child on this event loop, and wait until it has the parent's records."""
    settings = child_settings([down_pipe(parent.bootstrap_server)])
    async with BrokerServer(settings) as server:
        served = server._running.admin._served
        assert served is not None
        book = served.pipes.open()
        async with asyncio.timeout(10):
            while not book.status("hq").is_in_step:  # noqa: ASYNC110 (a status has no event)
                await asyncio.sleep(0.01)
        yield server, book


def test_a_marker_is_never_appended_to_a_mirror(parent: Broker) -> None:
    async def main() -> None:
        async with child_in_loop(parent) as (server, _):
            served = server._running.admin._served
            assert served is not None
            partition = served.replicas.partition(AT)
            end = TransactionEnd(7, 0, 0, commits=True)
            found: list[object] = []
            served.replicas.append_marker(partition, end, 1).then(found.append)
            assert isinstance(found[0], PolicyViolationError)
            assert partition.log.end_offset == 5

    asyncio.run(main())


def test_an_answer_after_a_promotion_is_not_appended(parent: Broker) -> None:
    async def main() -> None:
        async with child_in_loop(parent) as (server, book):
            records = memoryview(await asyncio.to_thread(stored, parent.bootstrap_server))
            await book.promote("hq", [])
            logs = book._logs
            assert logs.log(AT) is None
            with pytest.raises(PolicyViolationError, match="not a mirror any more"):
                await logs.append(AT, records, 0)
            served = server._running.admin._served
            assert served is not None
            assert served.replicas.partition(AT).log.end_offset == 5

    asyncio.run(main())


def test_pipes_follow_changed_settings(parent: Broker) -> None:
    async def main() -> None:
        async with child_in_loop(parent) as (server, book):
            live, settings = server._running.live, server._running.live.given
            other = down_pipe(parent.bootstrap_server, name="other", topics=("x",))
            changed = await live.take(settings.model_copy(update={"pipes": (other,)}))
            assert [one.key for one in changed] == ["pipes"]
            assert [one.options.name for one in book.statuses()] == ["other"]
            await live.take(settings.model_copy(update={"pipes": ()}))
            assert book.statuses() == []

    asyncio.run(main())


def test_a_broker_without_pipes_imports_and_starts_nothing() -> None:
    async def main() -> None:
        async with BrokerServer(child_settings([])) as server:
            served = server._running.admin._served
            assert served is not None
            assert served.pipes.book is None

    asyncio.run(main())


def test_a_compacted_topic_is_compared_by_its_batches_after_a_restore(parent: Broker) -> None:
    """Both sides write in equal epochs, so that only the batches differ."""
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
        operator = Operator(child)
        operator.wait_in_step()
        operator.ask("POST", "/hq/promote", {"topics": []})
        child.produce(TOPIC, "here", key="k")
        until(lambda: operator.pipe()["promoted"] == [TOPIC])
        raise_epoch_of(parent)
        parent.produce(TOPIC, "there", key="k")
        operator.ask("POST", "/hq/restore", {"topics": [TOPIC]})
        until(lambda: equal(child, parent))
        assert [one.value for one in child.records(TOPIC)][-1] == "there"


def raise_epoch_of(parent: Broker) -> None:
    """Raise the leader epoch of the parent's partition by one, as another leader would."""
    server = parent._last_server()
    served = server._running

    async def raised() -> None:
        metadata = served.metadata

        async def decide(base: ChangeBase) -> Decision[None]:
            topic = base.image.topics[TOPIC]
            states = mirror_changes.raised(topic, [1])
            writes = mirror_changes.change_writes(base.keys, topic, states, base.guards)
            return Decision(writes, lambda: None)

        await metadata.carry_out("raise an epoch", decide)

    loop = parent._alive()._loop
    assert loop is not None
    asyncio.run_coroutine_threadsafe(raised(), loop).result(10)
    parent.restart()


def test_the_epoch_of_a_mirror_follows_its_parent(parent: Broker) -> None:
    with Broker(child_settings([down_pipe(parent.bootstrap_server)])) as child:
        Operator(child).wait_in_step()
        raise_epoch_of(parent)
        parent.produce(TOPIC, "in epoch 1", key="k")
        until(lambda: equal(child, parent))
        with client_of(child.bootstrap_server) as down:
            assert down.leaders([AT])[AT].leader_epoch == 1
