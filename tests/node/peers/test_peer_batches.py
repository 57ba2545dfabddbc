"""Items for other brokers share requests; each gets its own result, and no item waits for long."""

import asyncio
from collections.abc import Sequence

import pytest

from penstock.core.errors import BrokerUnreachableError, PenstockError
from penstock.node.peers import peer_batches
from penstock.node.peers.peer_batches import PeerBatches
from penstock.node.peers.peer_limits import CALL_SLOTS


class Sender:
    """Requests that are answered when the test says so."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int, list[int]]] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.error: PenstockError | None = None

    async def send(self, broker_id: int, slot: int, items: Sequence[int]) -> list[int]:
        self.requests.append((broker_id, slot, list(items)))
        await self.is_open.wait()
        if self.error is not None:
            raise self.error
        return [item * 10 for item in items]


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_items_of_one_turn_share_a_request_to_their_broker() -> None:
    async def run() -> None:
        sender = Sender()
        batches = PeerBatches[int, int](sender.send, items_max=100)
        found = await asyncio.gather(
            *(batches.submit(2, one) for one in range(5)), batches.submit(3, 9)
        )
        assert found == [0, 10, 20, 30, 40, 90]
        assert sender.requests == [(2, 0, [0, 1, 2, 3, 4]), (3, 0, [9])]

    asyncio.run(run())


def test_items_that_arrive_while_a_request_waits_use_other_connections_and_then_gather() -> None:
    async def run() -> None:
        sender = Sender()
        sender.is_open.clear()
        batches = PeerBatches[int, int](sender.send, items_max=100)
        loop = asyncio.get_running_loop()
        tasks = []
        for one in range(CALL_SLOTS + 5):
            tasks.append(loop.create_task(batches.submit(2, one)))
            await turns()
        assert [slot for _, slot, _ in sender.requests] == list(range(CALL_SLOTS))
        sender.is_open.set()
        assert await asyncio.gather(*tasks) == [one * 10 for one in range(CALL_SLOTS + 5)]
        assert [items for _, _, items in sender.requests[CALL_SLOTS:]] == [
            list(range(CALL_SLOTS, CALL_SLOTS + 5))
        ]

    asyncio.run(run())


def test_a_request_has_a_bounded_number_of_items() -> None:
    async def run() -> None:
        sender = Sender()
        batches = PeerBatches[int, int](sender.send, items_max=3)
        await asyncio.gather(*(batches.submit(2, one) for one in range(8)))
        assert [len(items) for _, _, items in sender.requests] == [3, 3, 2]

    asyncio.run(run())


def test_the_error_of_a_request_is_the_result_of_its_items() -> None:
    async def run() -> None:
        sender = Sender()
        sender.error = BrokerUnreachableError("away")
        batches = PeerBatches[int, int](sender.send, items_max=10)
        found = await asyncio.gather(batches.submit(2, 1), batches.submit(2, 2))
        assert list(found) == [sender.error, sender.error]
        sender.error = None
        assert await batches.submit(2, 3) == 30

    asyncio.run(run())


def test_an_abandoned_item_does_not_disturb_the_others() -> None:
    async def run() -> None:
        sender = Sender()
        sender.is_open.clear()
        batches = PeerBatches[int, int](sender.send, items_max=10)
        loop = asyncio.get_running_loop()
        one, other = loop.create_task(batches.submit(2, 1)), loop.create_task(batches.submit(2, 2))
        await turns()
        one.cancel()
        await turns()
        sender.is_open.set()
        assert await other == 20

    asyncio.run(run())


def test_the_number_of_waiting_items_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_batches, "WAITING_MAX", 2)

    async def run() -> None:
        sender = Sender()
        sender.is_open.clear()
        batches = PeerBatches[int, int](sender.send, items_max=1)
        loop = asyncio.get_running_loop()
        tasks = []
        for one in range(CALL_SLOTS + 2):
            tasks.append(loop.create_task(batches.submit(2, one)))
            await turns()
        refused = await batches.submit(2, 99)
        assert isinstance(refused, BrokerUnreachableError)
        assert "at most 2" in str(refused)
        await batches.stop()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)

    asyncio.run(run())
