"""`deliver`: a decorated handler on records, without a broker and without waiting."""

import asyncio
import time

import penstock
from penstock.consumers.delivery.deliveries import Acknowledgement
from penstock.core.types import TopicPartition
from penstock.testing import deliver, deliver_async

POLICY = penstock.RetryPolicy(attempts=6, backoff="100ms..30s", in_place="400ms", jitter=False)


@penstock.consumer(topic="orders", group="g", retry=POLICY, dead_letter="dlq.orders")
async def bill(record: penstock.ConsumerRecord) -> None:
    if record.text() == "late" and record.attempt < 5:
        raise ConnectionError("not yet")
    record.json() if record.text() != "late" else None


def test_retries_pauses_and_dead_letters_cost_no_time() -> None:
    begun = time.monotonic()
    result = deliver(bill, '{"id": 1}', "late", "broken")
    assert time.monotonic() - begun < 1
    assert [(one.offset, one.attempt) for one in result.handled] == [(0, 1), (1, 5)]
    (letter,) = result.dead_letters
    assert (letter.record.text(), letter.record.attempt, letter.topic) == (
        "broken",
        6,
        "dlq.orders",
    )
    assert type(letter.error).__name__ == "JSONDecodeError"
    assert sorted(set(result.pauses_seconds)) == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert result.error is None
    assert result.progress.positions[TopicPartition("orders", 0)] == 3


def test_on_a_loop_and_with_whole_records() -> None:
    record = penstock.ConsumerRecord("any", 3, 17, 0, b"k", b"{}")

    async def run() -> None:
        result = await deliver_async(bill, record)
        assert result.progress.positions == {TopicPartition("orders", 3): 18}

    asyncio.run(run())


@penstock.consumer(topic="orders", group="g", retry=penstock.RetryPolicy(attempts=1))
def fail(record: penstock.ConsumerRecord) -> None:
    raise ValueError(record.text())


def test_a_stop_is_reported() -> None:
    result = deliver(fail, "a", "b")
    assert result.error is not None
    assert len(result.failures) == 1
    assert not result.handled


@penstock.consumer(topic="jobs", group="g", mode="queue", batch=2)
def work(records: list[penstock.ConsumerRecord]) -> None:
    assert len(records) <= 2


def test_queues_and_batches() -> None:
    result = deliver(work, "a", "b", "c")
    assert [one.acknowledgement for one in result.progress.settled] == [Acknowledgement.ACCEPT] * 3


def test_a_consumer_is_still_a_function() -> None:
    assert work([]) is None
    assert getattr(work, "__name__", "") == "work"
