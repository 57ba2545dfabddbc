"""What several suites of tables begin with."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.spark.tables.batch_world import BatchWorld


@pytest.fixture
def new_world(tmp_path: Path) -> Callable[[], BatchWorld]:
    """Makes worlds of batches, each from nothing."""
    numbers = count()
    return lambda: BatchWorld(tmp_path / str(next(numbers)))
