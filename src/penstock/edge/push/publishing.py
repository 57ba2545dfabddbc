"""Batches from the records that push clients publish.

Records that arrive together for one partition become one batch: an append costs as much as fifty
records. A record above `PUBLISH_BATCH_BYTES` is a batch of its own, so an oversized one is refused
alone. The order of a client's records in a partition is the order of its frames.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from penstock.client.records.partitioner import partition_of_key
from penstock.edge.push.limits import PUBLISH_BATCH_BYTES
from penstock.edge.push.ports import PushBroker
from penstock.edge.push.reactions import Published
from penstock.protocol.push.data import BATCH, NO_PARTITION, NO_TIMESTAMP
from penstock.protocol.push.payloads import Refusal
from penstock.records.builder import BatchBuilder
from penstock.records.record import Header, Record

Outcome = tuple[int, int] | Refusal
"""Partition and offset of a record, or why it was refused."""


class Publisher(Protocol):
    """The connection of a client that publishes."""

    client: object
    next_partition: int

    def publishes_done(self, outcomes: list[tuple[int, Outcome]]) -> None:
        """Published records are on disk or were refused; each has its message id."""
        ...


def publish_all(publisher: Publisher, broker: PushBroker, records: list[Published]) -> None:
    """Append records in as few batches as possible."""
    for topic, partition, few in _groups(publisher, records):
        batch = _batch(few, broker)
        broker.publish(
            publisher.client, topic, partition, batch, _report(publisher, partition, few)
        )


def _report(
    publisher: Publisher, partition: int, few: list[Published]
) -> Callable[[int | Refusal], None]:
    def done(outcome: int | Refusal) -> None:
        found: list[tuple[int, Outcome]] = [
            (
                one.message_id,
                outcome if isinstance(outcome, Refusal) else (partition, outcome + place),
            )
            for place, one in enumerate(few)
        ]
        publisher.publishes_done(found)

    return done


def _groups(
    publisher: Publisher, records: list[Published]
) -> Iterator[tuple[str, int, list[Published]]]:
    """Records by topic and partition; each group fits into one batch."""
    groups: dict[tuple[str, int], list[Published]] = {}
    sizes: dict[tuple[str, int], int] = {}
    publisher.next_partition += 1
    for one in records:
        place = one.topic, _partition(publisher, one)
        is_alone = one.data.kind == BATCH or one.size_bytes > PUBLISH_BATCH_BYTES
        if is_alone or sizes.get(place, 0) + one.size_bytes > PUBLISH_BATCH_BYTES:
            if place in groups:
                yield *place, groups.pop(place)
            sizes[place] = 0
        if is_alone:
            yield *place, [one]
        else:
            groups.setdefault(place, []).append(one)
            sizes[place] = sizes.get(place, 0) + one.size_bytes
    for (topic, partition), few in groups.items():
        yield topic, partition, few


def _partition(publisher: Publisher, one: Published) -> int:
    data = one.data
    if data.partition != NO_PARTITION:
        return data.partition
    if data.key is not None:
        return partition_of_key(data.key, one.partition_count)
    return publisher.next_partition % one.partition_count


def _batch(few: list[Published], broker: PushBroker) -> bytes | bytearray:
    first = few[0].data
    if first.kind == BATCH:
        return bytearray(first.value or b"")
    builder, now_ms = BatchBuilder(), broker.now_ms()
    for one in few:
        data = one.data
        builder.append(
            Record(
                data.key,
                data.value,
                tuple(Header(name, value) for name, value in data.headers),
                now_ms if data.timestamp_ms == NO_TIMESTAMP else data.timestamp_ms,
            )
        )
    return builder.build()
