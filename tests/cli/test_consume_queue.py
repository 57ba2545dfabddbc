"""`penstock consume --queue`: print, then acknowledge; options, counts, and the missing extra."""

import io
import sys
from collections.abc import Iterator

import pytest

from penstock.cli.consumers import queue_consuming
from penstock.cli.consumers.queue_consuming import print_records
from penstock.client.records.topic_reader import ReadRecord
from penstock.consumers.consumer_record import ConsumerRecord
from tests.cli.conftest import Penstock

ACCEPT, RELEASE, REJECT = 1, 2, 3


def record(offset: int) -> ConsumerRecord:
    return ConsumerRecord("orders", 0, offset, 5, b"k", b"v%d" % offset, (("h", b"1"),), 1)


class Queue:
    """`Reader` with given polls."""

    def __init__(self, *polls: list[ConsumerRecord]) -> None:
        self.polls = list(polls)
        self.settled: list[tuple[int, int]] = []

    def poll(self, seconds: float) -> list[ConsumerRecord]:
        return self.polls.pop(0) if self.polls else []

    def settle(self, records: list[tuple[ConsumerRecord, int]]) -> None:
        self.settled += [(one.offset, kind) for one, kind in records]


class Clock:
    """Each look is a second later."""

    def __init__(self) -> None:
        self.ticks: Iterator[float] = iter(float(number) for number in range(1000))

    def __call__(self) -> float:
        return next(self.ticks)


def value_of(one: ReadRecord) -> bytes:
    return (one.value or b"") + b"\n"


def test_records_are_acknowledged_after_they_are_written() -> None:
    queue, output = Queue([record(0), record(1)], [], [record(2)]), io.BytesIO()
    done = print_records(
        queue, output, value_of, kind=REJECT, count=None, patience=(9, 5), now=Clock()
    )
    assert (done, output.getvalue()) == (3, b"v0\nv1\nv2\n")
    assert queue.settled == [(0, REJECT), (1, REJECT), (2, REJECT)]


def test_records_beyond_the_count_are_released() -> None:
    queue, output = Queue([record(0), record(1), record(2)]), io.BytesIO()
    done = print_records(queue, output, value_of, kind=ACCEPT, count=2, patience=None)
    assert (done, output.getvalue()) == (2, b"v0\nv1\n")
    assert queue.settled == [(0, ACCEPT), (1, ACCEPT), (2, RELEASE)]
    assert print_records(Queue(), output, value_of, kind=ACCEPT, count=0, patience=None) == 0


def test_records_that_could_not_be_written_are_not_acknowledged() -> None:
    class Closed(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    queue = Queue([record(0)])
    with pytest.raises(BrokenPipeError):
        print_records(queue, Closed(), value_of, kind=ACCEPT, count=None, patience=None)
    assert queue.settled == []


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--group", "g"), "need --queue"),
        (("--acknowledge", "reject"), "need --queue"),
        (("--queue", "--from", "earliest"), "does not go with --from"),
        (("--queue", "--partition", "0"), "does not go with --from or --partition"),
    ],
)
def test_options_that_do_not_go_together(
    penstock: Penstock, words: tuple[str, ...], error: str
) -> None:
    outcome = penstock("consume", "orders", *words)
    assert outcome.code == 2
    assert error in outcome.errors
    assert "hint:" in outcome.errors


def test_the_missing_package_is_named(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    outcome = penstock("consume", "orders", "--queue")
    assert outcome.code == 1
    assert "pip install 'penstock[consumer]'" in outcome.errors


def test_a_missing_topic_is_an_error_as_without_queue(penstock: Penstock) -> None:
    from penstock.testing import Broker

    with Broker() as broker:
        broker.create_topic("orders")
        at = ("--bootstrap-server", broker.bootstrap_server)
        for name in ("ordres", "nothing"):
            plain = penstock("consume", name, *at)
            assert plain.code == 1
            assert "hint: " in plain.errors
            assert penstock("consume", name, "--queue", *at) == plain


@pytest.mark.interop
def test_a_queue_is_printed_and_accepted(
    penstock: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With confluent-kafka on a broker in memory; two commands share the records."""
    from penstock.testing import Broker

    monkeypatch.setattr(queue_consuming, "IDLE_SECONDS", 2.0)
    monkeypatch.setattr(queue_consuming, "JOIN_SECONDS", 12.0)
    with Broker() as broker:
        at = ("--bootstrap-server", broker.bootstrap_server)
        broker.create_topic("orders")
        broker.produce("orders", *(f"v{number}" for number in range(5)))
        start = "share.auto.offset.reset=earliest"
        assert penstock("group", "configure", "orders", start, *at).code == 0
        first = penstock("consume", "orders", "--queue", "--count", "2", *at)
        assert (first.code, first.output) == (0, "v0\nv1\n")
        rest = penstock("consume", "orders", "--queue", "--show", "offset,value", *at)
        assert sorted(rest.output.splitlines()) == ["2\tv2", "3\tv3", "4\tv4"]
        assert "no records for share group" in penstock("consume", "orders", "--queue", *at).errors
