"""Publisher and receiver for Kafka's protocol, by confluent-kafka: both systems use them.

The publisher is idempotent with acks=all, so a repeated send is stored once. The receiver reads the
log by offset with `read_committed`, so it sees the content of the log and not the state of a group.
"""

import contextlib
import threading
from typing import Any

from benchmarks.outages.outage_plan import number_in
from benchmarks.outages.outage_run import Deliver

ACKNOWLEDGED_SECONDS_MAX = 120.0
QUIET = {"log_level": 0, "reconnect.backoff.max.ms": 500, "socket.timeout.ms": 30_000}


class KafkaPublisher:
    """Sends to one topic, one message at a time."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "message.timeout.ms": 0,
            }
        )

    def publish(self, content: bytes) -> int:
        """Return the offset of an acknowledged message; raise `OSError`."""
        found: list[int] = []
        failed: list[str] = []

        def done(error: Any, record: Any) -> None:  # noqa: ANN401
            if error is None:
                found.append(record.offset())
            else:
                failed.append(str(error))

        self._producer.produce(self._topic, content, partition=0, on_delivery=done)
        self._producer.flush(ACKNOWLEDGED_SECONDS_MAX)
        if not found:
            raise OSError(f"not accepted: {failed}")
        return found[0]


def receive(bootstrap: str, topic: str, deliver: Deliver, is_done: threading.Event) -> None:
    """Deliver the records of a topic until done."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "group.id": "outage",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
            "topic.metadata.refresh.interval.ms": 1_000,
            "fetch.wait.max.ms": 100,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while not is_done.is_set():
            record = consumer.poll(0.2)
            value = None if record is None or record.error() is not None else record.value()
            if record is not None and value is not None:
                deliver(number_in(value), record.offset())
    finally:
        consumer.close()


def create_topic(bootstrap: str, *names: str) -> None:
    """Create topics with one partition."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, 1, 1) for name in names]
    for future in admin.create_topics(wanted, request_timeout=30).values():
        future.result(40)


def wait_for_topic(bootstrap: str, name: str, seconds: float = 60.0) -> None:
    """Wait until a topic exists."""
    import time

    from confluent_kafka.admin import AdminClient

    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        with contextlib.suppress(Exception):
            if name in admin.list_topics(timeout=3).topics:
                return
        time.sleep(0.3)
    raise OSError(f"the topic {name} does not appear at {bootstrap}")
