"""Streams that run beside a test, and their output.

Guarantees: a query is stopped when its block is left; one that failed is an error at once and not
a wait that runs out.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

WAIT_SECONDS_MAX = 60.0
_POLL_SECONDS = 0.05


@contextmanager
def running(writer: DataStreamWriter) -> Iterator[StreamingQuery]:
    """Start the query, and stop it at the end of the block."""
    query = writer.start()
    try:
        yield query
    finally:
        query.stop()


def wait_until(query: StreamingQuery, condition: Callable[[], bool]) -> None:
    """Wait until the running query has this effect."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        failure = query.exception()
        if failure is not None:
            raise failure
        assert query.isActive, "the query ended"
        assert time.monotonic() < deadline, f"not in {WAIT_SECONDS_MAX} s: {query.status}"
        time.sleep(_POLL_SECONDS)


class TopicReader:
    """Reads a topic by librdkafka from its beginning, to judge the output of a sink."""

    def __init__(
        self, bootstrap: str, topic: str, *, partitions: int = 1, isolation: str = "read_committed"
    ) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "isolation.level": isolation,
                "enable.auto.commit": "false",
                "fetch.wait.max.ms": "100",
                "log_level": "0",
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.messages: list[Message] = []

    def poll(self, timeout_seconds: float = 0.0) -> Message | None:
        """The next message, if one comes in time."""
        message = self._consumer.poll(timeout_seconds)
        if message is None:
            return None
        assert message.error() is None, message.error()
        self.messages.append(message)
        return message

    def has(self, count: int) -> bool:
        """Whether so many messages came by now; takes what is there."""
        while len(self.messages) < count and self.poll(0.1) is not None:
            pass
        return len(self.messages) >= count

    def wait_for(self, count: int) -> list[Message]:
        """Wait for so many messages, and make sure that there are no more."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not self.has(count):
            assert time.monotonic() < deadline, f"{len(self.messages)} of {count} messages"
        assert self.poll(0.3) is None, "more than was expected"
        return self.messages

    def close(self) -> None:
        """Leave the broker."""
        self._consumer.close()


@contextmanager
def topic_reader(
    bootstrap: str, topic: str, *, partitions: int = 1, isolation: str = "read_committed"
) -> Iterator[TopicReader]:
    """A reader that is closed at the end of the block."""
    reader = TopicReader(bootstrap, topic, partitions=partitions, isolation=isolation)
    try:
        yield reader
    finally:
        reader.close()
