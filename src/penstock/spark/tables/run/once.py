"""The batches of a run with an end (`once`), without a stream.

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


def batches_now(
    lookups: Lookups, options: SourceOptions, start: StreamOffset
) -> Iterator[list[TaskOrder]]:
    """Return the tasks of each batch in turn, up to the current end of the topics, without plans.

    The next batch is planned after the commit of the previous one.
    """
    batches = MicroBatches(lookups, options)
    batches.prepare_available_now()
    document = write_offset(start)
    while True:
        with second_log_refused():
            end = batches.latest_offset(document, options.limits)
        if end == document:
            return
        until = read_offset(end)
        require_no_second_log(read_offset(document), until)
        cluster_id = until.cluster_id
        yield [TaskOrder(task, None, cluster_id) for task in batches.plan(document, end)]
        document = end
