"""A Spark task's reading in a process with little memory: its result, as one line of JSON.

    python -m tests.scale.limited_task ADDRESS TOPIC UNTIL_OFFSET MEMORY_BYTES

The limit is on the address space, as Spark's own `spark.executor.pyspark.memory`: a larger
allocation fails. Rows are counted and thrown away, as Spark's worker does once it has passed a
batch on.
"""

import json
import resource
import sys
import time
from pathlib import Path

from penstock.core.types import TopicPartition
from penstock.spark.planning import OffsetRange, ReadTask
from penstock.spark.source.options import Mode, read_source_options
from penstock.spark.source.task_reader import TaskSettings, read_task


def peak_bytes() -> int:
    """The most memory this program had. `ru_maxrss` counts the parent's too, from before exec."""
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) * 1024


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
        "peak_bytes": peak_bytes(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
