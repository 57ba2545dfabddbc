"""Small runs with client processes against a broker in this process: what each client reads."""

from collections.abc import Iterator

import pytest

from penstock.bench import Workload, run
from penstock.bench.reading import NothingToReadError
from penstock.testing import Broker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def test_a_small_count_fills_every_partition_that_is_read(broker: Broker) -> None:
    workload = Workload(kind="consume", count=100, partitions=4, clients=4, warmup_seconds=0.0)
    measured = run(workload, broker.bootstrap_server)
    assert measured.records >= 100
    assert len(measured.busy_shares) == 4
    assert not any("could read" in note for note in measured.notes)


def test_clients_without_a_partition_are_not_counted(broker: Broker) -> None:
    broker.create_topic("uneven", partitions=2)
    broker.produce("uneven", *(b"value" for _ in range(10)), partition=1)
    workload = Workload(kind="consume", topic="uneven", count=20, clients=3, warmup_seconds=0.0)
    measured = run(workload, broker.bootstrap_server)
    assert measured.records >= 20
    assert measured.workload.clients == len(measured.busy_shares) == 1
    assert measured.notes[0].startswith(
        "1 of the 3 clients could read: the topic has records in 1 partition,"
    )


def test_only_a_topic_that_is_empty_is_refused(broker: Broker) -> None:
    broker.create_topic("empty", partitions=2)
    workload = Workload(kind="consume", topic="empty", count=20, clients=2)
    with pytest.raises(NothingToReadError, match="empty has no records"):
        run(workload, broker.bootstrap_server)
