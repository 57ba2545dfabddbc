"""Pipelines into a Hive metastore and into a database, while processes are killed.

The faults: kill -9 of the driver, of a worker and of the broker, a second driver and, for tables on
S3, a store that is stopped and started. After each round both tables are compared with the records
of librdkafka. Two rounds for Hive; with PENSTOCK_PROOF=1 fifty for each catalog, or as many as
PENSTOCK_TABLE_ROUNDS says. PENSTOCK_SEED repeats the choices of a run.

`test_store_kills` has the REST catalog and Delta, `test_nessie_kills` has Nessie.
"""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.oracle.hive_metastore import hive_metastore
from tests.oracle.object_store import ObjectStore
from tests.spark.stores.lake import Lake
from tests.spark.tables.pipeline_feeder import COLUMNS_MAX
from tests.spark.tables.pipeline_rounds import TOPIC, NewWorld, rounds_of, supervised
from tests.spark.tables.pipeline_world import World

pytestmark = [pytest.mark.crash, pytest.mark.timeout(7_200)]

IS_PROOF = os.environ.get("PENSTOCK_PROOF") == "1"
ROUNDS = int(os.environ.get("PENSTOCK_TABLE_ROUNDS", "50"))
SEED = int(os.environ.get("PENSTOCK_SEED", "1"))
PROCESSES = ("driver", "worker", "broker", "second")
SAMPLE = ["driver", "worker"]
LOCK_SECONDS = 6
"""Hive drops the lock of a killed driver after this time, instead of 300 seconds."""
AWAY_SECONDS = (0.5, 4.0)


def follow_rounds(
    folder: Path,
    name: str,
    new_world: NewWorld,
    store: ObjectStore | None = None,
    columns_max: int = COLUMNS_MAX,
) -> None:
    """Run each fault once, and then faults by chance; compare the tables after each."""
    faults = {} if store is None else {"store": _restarts_of(store)}
    every = (*PROCESSES, *faults)
    dice = random.Random(f"{SEED} {name}")
    kinds = [
        every[number] if number < len(every) else dice.choice(every) for number in range(ROUNDS)
    ]
    with supervised(folder, new_world, SEED, faults=faults, columns_max=columns_max) as supervisor:
        found = rounds_of(supervisor, name, kinds if IS_PROOF else SAMPLE, SEED)
    assert found.is_right, str(found)
    assert found.rejects


def _restarts_of(store: ObjectStore) -> Callable[[random.Random], None]:
    def restart(dice: random.Random) -> None:
        store.stop()
        time.sleep(dice.uniform(*AWAY_SECONDS))
        store.start()

    return restart


def test_each_offset_once_in_a_metastore(tmp_path: Path) -> None:
    with hive_metastore(tmp_path / "hive", lock_seconds=LOCK_SECONDS) as metastore:
        catalog = metastore.catalog(tmp_path / "warehouse")

        def new_world(bootstrap: str) -> World:
            return World(tmp_path, "iceberg", bootstrap, TOPIC, catalog)

        follow_rounds(tmp_path, "hive", new_world)


if IS_PROOF:

    def test_each_offset_once_in_a_database(lake: Lake, tmp_path: Path) -> None:
        def new_world(bootstrap: str) -> World:
            return lake.world("sql", tmp_path, bootstrap, TOPIC)

        follow_rounds(tmp_path, "sql on S3", new_world, lake.store)
