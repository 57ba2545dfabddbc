"""`penstock consume --queue`: print records of a topic as a member of a share group.

A record is acknowledged after it was written to standard output: a command that ends early, or
whose output fails, leaves its records to other members. confluent-kafka reads the queue (extra
`consumer`); Penstock has no group client of its own.
"""

import sys
import time
from collections.abc import Callable
from typing import BinaryIO, Final, Protocol

from penstock.cli.brokers import open_cluster
from penstock.cli.client_settings import (
    chosen_bootstrap,
    client_settings,
    librdkafka_settings,
)
from penstock.cli.options import WrongUsageError
from penstock.cli.output import note
from penstock.client.records.topic_reader import ReadRecord
from penstock.consumers.consumer_record import ConsumerRecord
from penstock.consumers.kafka import library
from penstock.consumers.kafka.queue_reader import ACCEPT, REJECT, RELEASE, QueueReader
from penstock.records.record import Header

ACKNOWLEDGE_TYPES: Final = {"accept": ACCEPT, "release": RELEASE, "reject": REJECT}
POLL_RECORDS_MAX: Final = 500
POLL_SECONDS: Final = 0.5
JOIN_SECONDS: Final = 15.0
IDLE_SECONDS: Final = 5.0
"""Without `--follow`: the command ends when no record has come for this long, at the start and
after the last record. A new member gets its partitions after two heartbeats."""


class Reader(Protocol):
    """The part of `QueueReader` that the loop uses."""

    def poll(self, seconds: float) -> list[ConsumerRecord]:
        """Return the next records."""
        ...

    def settle(self, records: "list[tuple[ConsumerRecord, int]]") -> None:
        """Acknowledge records."""
        ...


def check_queue_options(*, is_queue: bool, is_placed: bool) -> None:
    """Raise a usage error for options of a queue without `--queue`, or with a position."""
    if not is_queue:
        raise WrongUsageError(
            "--group and --acknowledge need --queue.", hint="Add --queue, or leave them out."
        )
    if is_placed:
        raise WrongUsageError(
            "--queue does not go with --from or --partition: the share group has the position.",
            hint="A new group starts at the end of the topic. To start at the beginning: "
            "`penstock group configure GROUP share.auto.offset.reset=earliest`.",
        )


def consume_queue(
    topic: str,
    group: str,
    bootstrap: str,
    to_line: Callable[[ReadRecord], bytes],
    *,
    kind: int,
    count: int | None,
    follow: bool,
    timeout_seconds: float,
) -> None:
    """Join the share group and print records until the end; raise if the topic does not exist."""
    library.load_share_consumer()  # first: without the package, no broker is asked
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        cluster.topic(topic)  # a share group may wait for a topic; the command does not
    settings = client_settings()
    reader = QueueReader(
        topic,
        group,
        chosen_bootstrap(bootstrap, settings),
        librdkafka_settings(),
        records_max=POLL_RECORDS_MAX if count is None else max(1, min(count, POLL_RECORDS_MAX)),
    )
    try:
        done = print_records(
            reader,
            sys.stdout.buffer,
            to_line,
            kind=kind,
            count=count,
            patience=None if follow else (JOIN_SECONDS, IDLE_SECONDS),
        )
    finally:
        reader.close()
    if not done and count != 0:
        note(
            f"no records for share group {group}. A new group starts at the end of the topic: "
            f"`penstock group configure {group} share.auto.offset.reset=earliest` changes that."
        )


def print_records(
    reader: Reader,
    output: BinaryIO,
    to_line: Callable[[ReadRecord], bytes],
    *,
    kind: int,
    count: int | None,
    patience: tuple[float, float] | None,
    now: Callable[[], float] = time.monotonic,
) -> int:
    """Print records and acknowledge them; return their number.

    Records that were polled and not printed, because of `count`, are released. `patience` has the
    seconds without records after which it ends: before the first record, and afterwards.
    """
    done, last = 0, now()
    while count is None or done < count:
        records = reader.poll(POLL_SECONDS)
        if not records:
            if patience is not None and now() - last >= patience[done > 0]:
                break
            continue
        printed = records if count is None else records[: count - done]
        output.writelines(to_line(_read_record(record)) for record in printed)
        output.flush()
        settled = [(one, kind) for one in printed]
        settled += [(one, RELEASE) for one in records[len(printed) :]]
        reader.settle(settled)
        done, last = done + len(printed), now()
    return done


def _read_record(record: ConsumerRecord) -> ReadRecord:
    return ReadRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        tuple(Header(name, value) for name, value in record.headers),
    )
