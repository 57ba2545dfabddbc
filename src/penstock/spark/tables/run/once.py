"""The batches up to the current end of the topics, without a stream.

The batches are those of a stream with AvailableNow, with the same rules for deleted and new
partitions, starting at the table's position. Neither Spark's checkpoint nor the process of a
streaming source is needed: the table is the only truth, and the start of that process needs more
time than writing a million records.
"""

from collections.abc import Iterator

from penstock.spark.offsets import StreamOffset, read_offset, write_offset
from penstock.spark.source.lookups import Lookups
from penstock.spark.source.micro_batches import MicroBatches
from penstock.spark.source.options import SourceOptions
from penstock.spark.tables.run.table_offsets import require_no_second_log, second_log_refused
from penstock.spark.tables.tasks.orders import TaskOrder


class AvailableBatches:
    """The batches of one pipeline, up to ends that are looked up when the caller asks for them."""

    def __init__(self, lookups: Lookups, options: SourceOptions, start: StreamOffset) -> None:
        self._batches = MicroBatches(lookups, options)
        self._limits = options.limits
        self._document = write_offset(start)
        self.is_at_end = True
        """Whether no batch is left up to the ends of the last look."""

    def look(self) -> None:
        """Look up the ends of the topics; the next batches go up to them."""
        self._batches.prepare_available_now()
        self.is_at_end = False

    def next_orders(self) -> list[TaskOrder]:
        """Return the tasks of the next batch, without plans; none at the end.

        The caller commits a batch before it asks for the next one.
        """
        with second_log_refused():
            end = self._batches.latest_offset(self._document, self._limits)
        if end == self._document:
            self.is_at_end = True
            return []
        until = read_offset(end)
        require_no_second_log(read_offset(self._document), until)
        orders = [
            TaskOrder(task, None, until.cluster_id)
            for task in self._batches.plan(self._document, end)
        ]
        self._document = end
        return orders


def batches_now(
    lookups: Lookups, options: SourceOptions, start: StreamOffset
) -> Iterator[list[TaskOrder]]:
    """Return the tasks of each batch in turn, up to the current end of the topics, without plans.

    The next batch is planned after the commit of the previous one.
    """
    batches = AvailableBatches(lookups, options, start)
    batches.look()
    while True:
        orders = batches.next_orders()
        if batches.is_at_end:
            return
        yield orders
