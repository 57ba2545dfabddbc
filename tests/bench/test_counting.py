"""A reader counts records, not offsets."""

import time
from collections.abc import Iterator

import pytest

from penstock.bench import assignment as words
from penstock.bench import reading
from penstock.bench.assignment import Assignment
from penstock.bench.reading import NothingToReadError, Reader
from penstock.bench.workload import Workload
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker
from tests.broker.handlers.transactional import Transactional, until_written
from tests.node.test_transactions import TOPIC, produce, settings


@pytest.fixture
def reader() -> Iterator[Reader]:
    """Of a topic with one record and the mark that ends its transaction."""
    with Broker(settings()) as broker:
        broker.create_topic(TOPIC)
        with Asker(broker.port) as asker:
            one = Transactional(asker, "one").init()
            assert produce(one, b"value") == ErrorCode.NONE
            one.end(commits=True)
            until_written(asker, TOPIC, 2)
        workload = Workload(kind="consume", count=5, warmup_seconds=0.0, timeout_seconds=30.0)
        work = Assignment(
            words.READER, workload, broker.bootstrap_server, TOPIC, (0,), 0, 1, 1, "none"
        )
        made = Reader(work)
        yield made
        made.close()


def test_a_mark_of_a_transaction_is_no_record(reader: Reader) -> None:
    result = reader.run(time.monotonic_ns(), lambda _progress: None)
    assert result.records == result.requests == 5


def test_a_topic_with_nothing_but_marks_is_not_read_for_ever(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "records_in", lambda _data, _size: 0)
    with pytest.raises(NothingToReadError):
        reader.run(time.monotonic_ns(), lambda _progress: None)
