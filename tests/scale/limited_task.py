"""A Spark task's reading in a process with little memory: what it read, as one line of JSON.

    python -m tests.scale.limited_task ADDRESS TOPIC UNTIL_OFFSET MEMORY_BYTES

The limit is on the address space, as Spark's own `spark.executor.pyspark.memory`: whoever needs
more gets an error instead of memory. Rows are counted and thrown away, as Spark's worker does once
it has passed a batch on.
"""

import json
import resource
import sys
import time

from penstock.core.types import TopicPartition
from penstock.spark.options import Mode, read_source_options
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.task_reader import TaskSettings, read_task


def main(address: str, topic: str, until_offset: int, memory_bytes: int) -> None:
    """Read one range."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    options = read_source_options(
        {"kafka.bootstrap.servers": address, "subscribe": topic}, Mode.BATCH
    )
    one = ReadTask(OffsetRange(TopicPartition(topic, 0), 0, until_offset), None, -1)
    rows = value_bytes = 0
    began = time.monotonic()
    for batch in read_task(one, TaskSettings.of(options)):
        rows += batch.num_rows
        value_bytes += batch.column("value").nbytes
    found = {
        "rows": rows,
        "value_bytes": value_bytes,
        "seconds": round(time.monotonic() - began, 1),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
