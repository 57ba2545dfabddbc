"""A pipeline into Nessie on S3, while processes are killed and the store is stopped.

As `test_catalog_kills`. Nessie itself is never stopped, because it keeps its history in memory
here, and gets no new columns, which it refuses.
"""

from pathlib import Path

import pytest

from tests.spark.stores.nessie_lake import NessieLake
from tests.spark.stores.test_catalog_kills import follow_rounds
from tests.spark.stores.test_nessie import nessie  # noqa: F401 - a fixture
from tests.spark.tables.pipeline_rounds import TOPIC
from tests.spark.tables.pipeline_world import World

pytestmark = [pytest.mark.crash, pytest.mark.timeout(7_200)]


def test_each_offset_once_in_nessie(nessie: NessieLake, tmp_path: Path) -> None:  # noqa: F811
    def new_world(bootstrap: str) -> World:
        return nessie.world("rest", tmp_path, bootstrap, TOPIC)

    follow_rounds(tmp_path, "nessie on S3", new_world, nessie.store, columns_max=0)
