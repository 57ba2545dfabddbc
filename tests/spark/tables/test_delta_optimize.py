"""A Delta table on which Spark runs OPTIMIZE while a pipeline appends to it and compacts it."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.spark.errors import SparkQueryError
from penstock.spark.tables.formats.port import TableMovedError
from tests.oracle.spark_jars import delta_jars, iceberg_jars
from tests.oracle.table_engines import engine_python
from tests.spark.tables.contract_world import HERE, SECONDS_MAX
from tests.spark.tables.table_kinds import (
    SCHEMA,
    DeltaKind,
    commit_of,
    offsets_in,
    span,
    taken,
    written,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROUNDS_MAX = 60


@pytest.fixture
def optimizing(tmp_path: Path) -> Iterator[DeltaKind]:
    """A table on which Spark runs OPTIMIZE all the time."""
    kind = DeltaKind(tmp_path, schema=SCHEMA)
    kind.create()
    folder = tmp_path / "spark"
    jars = ",".join(str(jar) for jar in (*delta_jars("4.1"), *iceberg_jars()))
    job = {"repeat": f"OPTIMIZE delta.`{kind.uri}`"}
    with subprocess.Popen(
        [engine_python(), str(HERE / "contract_app.py"), str(folder)],
        stdin=subprocess.PIPE,
        env={**os.environ, "ENGINE_JARS": jars, "PYTHONPATH": ""},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(job))
        process.stdin.close()
        try:
            while not (folder / "ready").exists():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.2)
                assert process.poll() is None, "Spark did not start"
            yield kind
        finally:
            (folder / "stop").touch()
            process.wait(SECONDS_MAX)


def test_no_row_is_doubled_beside_an_optimize_of_spark(optimizing: DeltaKind) -> None:
    table, caring = optimizing.open(), optimizing.open()
    driver, state = taken(table, "run-a")
    compacted, start = 0, 0
    for _ in range(ROUNDS_MAX):
        files = written(table, (0, start, start + 10))
        while True:
            try:
                state = table.append(commit_of(state, driver, (0, start, start + 10)), files)
                break
            except (TableMovedError, SparkQueryError):
                state = table.load()
        start += 10
        try:
            compacted += caring.compact(caring.load(), target_bytes=2**20).removed_count
        except TableMovedError:
            continue
        if compacted > 20:
            break
    assert compacted > 0
    folder = optimizing.folder / "spark"
    (folder / "stop").touch()
    assert offsets_in(optimizing.read()) == span(0, 0, start)
