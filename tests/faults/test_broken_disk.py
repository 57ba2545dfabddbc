"""A disk that fails (EIO): the directory goes offline and nothing is acknowledged after it.

A failed sync is final: the kernel may have dropped the dirty pages, and a second sync would report
success. Records that were durable before are still served; the broker lives, so that consumers can
read them and an operator can investigate; a restart on a healthy disk resumes with everything that
was acknowledged.

Also here: records that are not durable yet are not visible.
"""

import errno
import threading

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.testing.broker import Broker
from tests.faults.wire import FaultyRoom, Wire

OK, STORAGE_ERROR = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
WAIT_SECONDS_MAX = 10.0


def restarted(disk: FaultyRoom, broker: Broker, wire: Wire) -> Broker:
    """The same disk, healthy again, under a new broker; not started yet."""
    wire.close()
    broker.stop()
    disk.failures.clear()
    return Broker(filesystem=disk)


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_after_a_failure_nothing_is_acknowledged(
    disk: FaultyRoom, broker: Broker, wire: Wire, operation: str
) -> None:
    assert wire.create("other") == OK
    assert wire.produce(b"before") == (OK, 0)
    disk.fail_next(operation, errno.EIO)
    assert wire.produce(b"failed")[0] == STORAGE_ERROR
    syncs = disk.operations.count(("sync", "/penstock/faults-0/00000000000000000000.log"))
    for topic in ("faults", "other"):
        assert wire.produce(b"after", topic=topic)[0] == STORAGE_ERROR
    assert wire.fetch() == (OK, [b"before"]), "what was durable is still served"
    again = disk.operations.count(("sync", "/penstock/faults-0/00000000000000000000.log"))
    assert again == syncs, "a failed sync is never tried again"
    with restarted(disk, broker, wire) as second, Wire(second.port) as connection:
        code, values = connection.fetch()
        assert code == OK
        assert values in ([b"before"], [b"before", b"failed"])
        assert connection.produce(b"resumed") == (OK, len(values))


def test_a_failed_sync_of_a_directory_is_as_bad(
    disk: FaultyRoom, broker: Broker, wire: Wire
) -> None:
    assert wire.create("rolling", configs={"segment.ms": "1000"}) == OK
    assert wire.produce(b"old", topic="rolling", timestamp_ms=1) == (OK, 0)
    disk.fail_next("sync_directory", errno.EIO)
    assert wire.produce(b"new", topic="rolling", timestamp_ms=5_000)[0] == STORAGE_ERROR
    assert wire.produce(b"new", topic="rolling", timestamp_ms=5_000)[0] == STORAGE_ERROR
    assert wire.fetch(topic="rolling") == (OK, [b"old"])
    with restarted(disk, broker, wire) as second, Wire(second.port) as connection:
        assert connection.fetch(topic="rolling")[1][:1] == [b"old"]


def test_several_partitions_that_wait_for_one_sync_all_fail(disk: FaultyRoom, wire: Wire) -> None:
    assert wire.create("wide", partitions=3) == OK
    disk.fail_next("sync", errno.EIO)
    answers = wire.produce_to({0: (b"a",), 1: (b"b",), 2: (b"c",)}, "wide")
    assert {code for code, _ in answers.values()} == {STORAGE_ERROR}


def test_a_read_that_fails_is_an_answer_and_not_the_end(disk: FaultyRoom, wire: Wire) -> None:
    assert wire.produce(b"kept") == (OK, 0)
    disk.fail_next("read", errno.EIO)
    assert wire.fetch() == (STORAGE_ERROR, [])
    assert wire.fetch() == (OK, [b"kept"])


def test_a_topic_on_a_dead_disk_is_refused(disk: FaultyRoom, wire: Wire) -> None:
    disk.fail_next("sync", errno.EIO)
    assert wire.produce(b"failed")[0] == STORAGE_ERROR
    assert wire.create("too-late") == STORAGE_ERROR
    assert wire.produce(b"x", topic="too-late")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.fetch() == (OK, [])


def test_what_is_not_durable_is_not_visible(disk: FaultyRoom, broker: Broker, wire: Wire) -> None:
    """Two partitions, because a lone append is synced before anybody else gets a turn."""
    assert wire.create("wide", partitions=2) == OK
    is_syncing, may_sync = threading.Event(), threading.Event()

    def hold(operation: str, _path: str) -> None:
        if operation == "sync":
            is_syncing.set()
            assert may_sync.wait(WAIT_SECONDS_MAX)

    disk.hook = hold
    answers: list[dict[int, tuple[ErrorCode, int]]] = []
    with Wire(broker.port) as second:
        values: dict[int, tuple[bytes, ...]] = {0: (b"a",), 1: (b"b",)}
        sender = threading.Thread(target=lambda: answers.append(second.produce_to(values, "wide")))
        sender.start()
        try:
            assert is_syncing.wait(WAIT_SECONDS_MAX)
            assert wire.fetch(topic="wide") == (OK, [])
            assert not answers
        finally:
            may_sync.set()
            sender.join()
    assert answers == [{0: (OK, 0), 1: (OK, 0)}]
    assert wire.fetch(topic="wide") == (OK, [b"a"])
