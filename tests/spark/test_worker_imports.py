"""The Python workers of Spark start fast: they import no settings of brokers and no pydantic."""

import subprocess
import sys

import pytest

READERS = (
    "penstock.spark.source.batch_reader",
    "penstock.spark.source.stream_reader",
    "penstock.spark.tables.run.source",
    "penstock.spark.tables.tasks.task",
)


@pytest.mark.parametrize("module", READERS)
def test_a_reader_imports_nothing_of_a_broker(module: str) -> None:
    script = (
        f"import sys, {module}; "
        "heavy = ('pydantic', 'penstock.core.settings', 'penstock.broker', 'penstock.storage'); "
        "print(sorted(name for name in sys.modules if name.startswith(heavy)))"
    )
    command = (sys.executable, "-c", script)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stderr
