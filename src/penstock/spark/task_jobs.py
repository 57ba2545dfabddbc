"""`run_tasks`: runs a function in Spark's tasks, one task for each input.

Guarantees: the results are returned in the order of the inputs. A session of Spark Connect has no
`sparkContext`, so it runs the same function in a DataFrame of numbers, one number for each task. A
failed task is repeated by Spark; a task that fails too often is the error of the job.

Each task of Spark Connect receives the inputs of its whole job, so that a job has a limit.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

CONNECT_TASKS_MAX: Final = 1_000
"""The tasks of one job of Spark Connect: some hundred kilobytes of inputs for each of them."""
_NUMBER: Final = "id"
"""The name of the column that `spark.range` returns."""

Input = TypeVar("Input")
Result = TypeVar("Result")


def is_connect(spark: SparkSession) -> bool:
    """Return whether this is a session of Spark Connect: a client of a driver elsewhere."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def run_tasks(
    spark: SparkSession, work: Callable[[Input], Result], inputs: Sequence[Input]
) -> list[Result]:
    """Return the result of `work` for each input."""
    if not inputs:
        return []
    if not is_connect(spark):
        # Use an RDD, because the tasks are known and nothing has to be planned.
        found: list[Result] = (
            spark.sparkContext.parallelize(inputs, len(inputs)).map(work).collect()
        )
        return found
    results: list[Result] = []
    for start in range(0, len(inputs), CONNECT_TASKS_MAX):
        results += _run_numbered(spark, work, inputs[start : start + CONNECT_TASKS_MAX])
    return results


def _run_numbered(
    spark: SparkSession, work: Callable[[Input], Result], inputs: Sequence[Input]
) -> list[Result]:
    count = len(inputs)
    numbers = spark.range(0, count, 1, count)
    tasks = numbers.mapInArrow(partial(_numbered, work, inputs), "id long, result binary")
    # Pickled by tasks of this session.
    found = {row[0]: pickle.loads(row[1]) for row in tasks.collect()}  # noqa: S301
    assert len(found) == count, "a task returned no result"
    return [found[number] for number in range(count)]


def _numbered(
    work: Callable[[Input], Result], inputs: Sequence[Input], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Return the results of the inputs with these numbers, in a task."""
    for batch in batches:
        for number in batch.column(_NUMBER).to_pylist():
            result = pa.array([pickle.dumps(work(inputs[number]))], pa.binary())
            yield pa.RecordBatch.from_arrays(
                [pa.array([number], pa.int64()), result], [_NUMBER, "result"]
            )
