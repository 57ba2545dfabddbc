"""`SmallBatches`: the driver writes a batch of few records without a Spark job.

Guarantees: it returns the reports of the whole batch, or nothing, and then Spark's tasks write the
batch. The tasks also handle every error: they wait longer, decide about deleted records, and report
the error. After a failure, tasks write the batches of the next minute.

Stopping a pipeline cannot cancel such a batch, and the batch is in the driver's memory. So its
limits of time and bytes are lower than a task's. One thread uses it at a time.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

import pyarrow as pa

from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.transport.options import ClientOptions
from penstock.spark.offsets import StreamOffset
from penstock.spark.planning import ReadTask
from penstock.spark.source.task_reader import TaskSettings
from penstock.spark.tables.files.storages import StoreError
from penstock.spark.tables.tasks.orders import TaskOrder, carry_out
from penstock.spark.tables.tasks.report import TaskReport

LOGGER: Final = logging.getLogger(__name__)
SECONDS_MAX: Final = 5.0
"""The time limit of a batch, and of each call to a broker."""
BYTES_MAX: Final = 16 * 2**20
"""The maximum size of the decoded records of a batch."""
PAUSE_SECONDS: Final = 60.0


class NotSmallError(Exception):
    """A batch of few records has many bytes, or needs too much time."""


class SmallBatches:
    """Writes small batches for one pipeline."""

    def __init__(self, settings: TaskSettings) -> None:
        # Never accept a loss here, whatever the pipeline allows: timeouts are short.
        self._settings = settings._replace(fail_on_data_loss=True)
        self._client = _impatient(settings.client)
        self._cluster: Cluster | None = None
        self._not_before = 0.0
        self._has_warned = False

    def reports(self, orders: Sequence[TaskOrder], held: StreamOffset) -> list[TaskReport]:
        """Return the reports of these orders; empty if tasks have to carry them out."""
        if not orders or monotonic() < self._not_before or not are_next(orders, held):
            return []
        allowance = Allowance(BYTES_MAX, monotonic() + SECONDS_MAX)
        try:
            if self._cluster is None:
                self._cluster = open_cluster(self._client)
            return list(carry_out(orders, self._settings, self._cluster, allowance.spent))
        except StoreError:
            raise  # tasks could not write either: the batch is repeated later
        except Exception as error:  # noqa: BLE001 - tasks meet the same error and report it
            self._give_up(error)
            return []

    def close(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()
        self._cluster = None

    def _give_up(self, error: Exception) -> None:
        level = logging.INFO if self._has_warned else logging.WARNING
        LOGGER.log(
            level, "Spark's tasks do small batches for a minute, the driver cannot: %s", error
        )
        self._has_warned = True
        self._not_before = monotonic() + PAUSE_SECONDS
        self.close()


class Allowance:
    """The limits of reading for one batch."""

    def __init__(self, bytes_left: int, until: float) -> None:
        self._bytes_left = bytes_left
        self._until = until

    def spent(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the same records; raise if the allowance is spent."""
        for batch in records:
            self._bytes_left -= batch.nbytes
            if self._bytes_left < 0:
                raise NotSmallError(f"the records of a batch have over {BYTES_MAX >> 20} MiB")
            if monotonic() > self._until:
                raise NotSmallError(f"a batch took over {SECONDS_MAX:g} seconds")
            yield batch


def are_next(orders: Sequence[TaskOrder], held: StreamOffset) -> bool:
    """Return whether none of these offsets is in the table already.

    Orders of another batch would be in it: Spark plans a batch before it calls the driver. This
    check detects a change of that order.
    """
    return not any(_is_held(order.task, held) for order in orders)


def _is_held(task: ReadTask, held: StreamOffset) -> bool:
    """Return whether the task's first offset is in the table already.

    Offsets of a recreated topic are not: they are offered, and the commit stops.
    """
    at, start, _ = task.range
    if at not in held.positions or held.topic_ids.get(at.topic) not in {None, task.topic_id}:
        return False
    return start < held.positions[at].offset


def _impatient(client: ClientOptions) -> ClientOptions:
    milliseconds = int(SECONDS_MAX * 1_000)
    return replace(
        client,
        request_timeout_ms=min(client.request_timeout_ms, milliseconds),
        retry_timeout_ms=min(client.retry_timeout_ms, milliseconds),
    )
