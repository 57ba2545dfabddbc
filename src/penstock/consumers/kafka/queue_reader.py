"""`QueueReader`: a member of a share group for a command, by confluent-kafka's ShareConsumer.

The caller polls, handles the records, and settles all of them before the next poll. `settle`
returns when the broker has answered. `close` leaves the group, and the broker releases records that
were not settled: another member gets them. It has one thread, the caller's, and does NOT retry.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.errors import ConsumerError
from penstock.consumers.kafka import library
from penstock.consumers.kafka.kafka_options import connection
from penstock.consumers.kafka.kafka_records import record_of

ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
"""The numbers of Kafka's acknowledge types."""
COMMIT_TIMEOUT_SECONDS: Final = 10.0


class QueueReader:
    """One member of a share group."""

    def __init__(
        self,
        topic: str,
        group: str,
        bootstrap: str,
        settings: Mapping[str, str],
        *,
        records_max: int,
    ) -> None:
        """Join the group; `settings` are librdkafka's."""
        self._group = group
        self._kafka = library.load()
        new_client = library.load_share_consumer()
        chosen = connection(bootstrap, settings) | {
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": records_max,
        }
        try:
            self._client: Any = new_client(chosen)
        except self._kafka.KafkaException as error:
            raise ConsumerError(f"wrong settings of the consumer: {error}.") from error
        self._client.subscribe([topic])

    def poll(self, seconds: float) -> list[ConsumerRecord]:
        """Return the next records, at most `records_max`; none if none came in time."""
        records: list[ConsumerRecord] = []
        for message in self._client.poll(seconds):
            error = message.error()
            if error is None:
                records.append(record_of(message))
            elif error.fatal() or not error.retriable():
                raise ConsumerError(
                    f"share group {self._group!r} cannot be read: {error.str()}.",
                    hint="Check the access rules, and that the broker has share groups (Penstock, "
                    "or Apache Kafka 4.2 or later).",
                )
        return records

    def settle(self, records: Iterable[tuple[ConsumerRecord, int]]) -> None:
        """Acknowledge records, each with its type; raise if the broker refuses some."""
        kinds = self._kafka.AcknowledgeType
        for record, kind in records:
            self._client.acknowledge_offset(
                record.topic, record.partition, record.offset, kinds(kind)
            )
        try:
            outcomes = self._client.commit_sync(COMMIT_TIMEOUT_SECONDS)
        except self._kafka.KafkaException as error:
            raise ConsumerError(
                f"acknowledgements of share group {self._group!r} failed: {error}.",
                hint="Members of the group get these records again.",
            ) from error
        for place, refusal in outcomes.items():
            if refusal is not None:
                raise ConsumerError(
                    f"acknowledgements for {place.topic}-{place.partition} were refused: "
                    f"{refusal}.",
                    hint="The lock of the records is over: members of the group get them again.",
                )

    def close(self) -> None:
        """Leave the group."""
        self._client.close()
