"""Tasks of a job without an RDD: each number is one input, and its result has the number."""

import pickle
from functools import partial

import pyarrow as pa

from penstock.spark import task_jobs
from penstock.spark.task_jobs import is_connect, run_tasks


def doubled(number: int) -> int:
    return number * 2


class Numbers:
    """A DataFrame of numbers in a session of Spark Connect: runs its tasks here."""

    def __init__(self, count: int) -> None:
        self._count = count

    def mapInArrow(self, function: object, schema: str) -> "Numbers":
        assert schema == "id long, result binary"
        self._function = pickle.loads(pickle.dumps(function))
        return self

    def collect(self) -> list[tuple[int, bytes]]:
        found = []
        for number in reversed(range(self._count)):  # tasks end in any order
            batch = pa.RecordBatch.from_pydict({"id": pa.array([number], pa.int64())})
            (result,) = self._function(iter([batch]))
            found.append((result["id"][0].as_py(), result["result"][0].as_py()))
        return found


class ConnectSession:
    """Has no `sparkContext`."""

    def __init__(self) -> None:
        self.jobs: list[int] = []

    def range(self, start: int, end: int, step: int, partitions: int) -> Numbers:
        assert (start, step, partitions) == (0, 1, end)
        self.jobs.append(end)
        return Numbers(end)


ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_results_have_the_order_of_the_inputs() -> None:
    session = ConnectSession()
    assert is_connect(session)  # type: ignore[arg-type]
    assert run_tasks(session, doubled, [5, 3, 8]) == [10, 6, 16]  # type: ignore[arg-type]
    assert run_tasks(session, doubled, []) == []  # type: ignore[arg-type]
    assert session.jobs == [3]


def test_a_job_has_a_limit() -> None:
    session = ConnectSession()
    count = task_jobs.CONNECT_TASKS_MAX + 1
    found = run_tasks(session, partial(max, 7), range(count))  # type: ignore[arg-type]
    assert found == [max(7, number) for number in range(count)]
    assert session.jobs == [task_jobs.CONNECT_TASKS_MAX, 1]
