"""Pipelines into a store, while everything fails: each committed offset once, in one table.

The faults: kill -9 of the driver, of a worker and of the broker, a second driver, a store that is
stopped and started, and keys that become invalid, with new ones some time later. After each round
both tables are compared with the records of librdkafka. Two rounds for Iceberg by REST; with
PENSTOCK_PROOF=1 fifty for Iceberg and fifty for Delta, or as many as PENSTOCK_TABLE_ROUNDS says.
PENSTOCK_SEED repeats the choices of a run.
"""

import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.spark.stores.keyed import Keys, keyed_world, secrets_in
from tests.spark.stores.lake import BUCKET, Lake
from tests.spark.stores.proxies import CredentialProxy, serving
from tests.spark.tables.pipeline_rounds import TOPIC, rounds_of, supervised
from tests.spark.tables.pipeline_world import World

pytestmark = [pytest.mark.crash, pytest.mark.timeout(7_200)]

IS_PROOF = os.environ.get("PENSTOCK_PROOF") == "1"
ROUNDS = int(os.environ.get("PENSTOCK_TABLE_ROUNDS", "50"))
SEED = int(os.environ.get("PENSTOCK_SEED", "1"))
FAULTS = ("driver", "store", "keys", "broker", "second", "worker")
SAMPLE = ["store", "keys"]
AWAY_SECONDS = (0.5, 4.0)
LATE_SECONDS_MAX = 2.0


def kinds_of(name: str) -> list[str]:
    """Each fault once, and then by chance."""
    if not IS_PROOF:
        return SAMPLE
    dice = random.Random(f"{SEED} {name}")
    return [
        FAULTS[number] if number < len(FAULTS) else dice.choice(FAULTS) for number in range(ROUNDS)
    ]


def store_faults(lake: Lake, keys: Keys) -> Mapping[str, Callable[[random.Random], None]]:
    def store(dice: random.Random) -> None:
        lake.store.stop()
        time.sleep(dice.uniform(*AWAY_SECONDS))
        lake.store.start()

    def expire(dice: random.Random) -> None:
        keys.expire(late_seconds=dice.uniform(0, LATE_SECONDS_MAX))

    return {"store": store, "keys": expire}


@pytest.mark.parametrize("name", ["rest", "delta"] if IS_PROOF else ["rest"])
def test_each_offset_once_whatever_happens_to_the_store(
    name: str, lake: Lake, tmp_path: Path
) -> None:
    made: list[Keys] = []
    proxy = CredentialProxy(lake.rest.port)

    def new_world(bootstrap: str) -> World:
        world, keys = keyed_world(name, lake, proxy, tmp_path, bootstrap, TOPIC)
        keys.give()
        made.append(keys)
        return world

    faults: dict[str, Callable[[random.Random], None]] = {}
    with serving(proxy), supervised(tmp_path, new_world, SEED, faults=faults) as supervisor:
        (keys,) = made
        faults.update(store_faults(lake, keys))
        found = rounds_of(supervisor, f"{name} on S3", kinds_of(name), SEED)
    assert found.is_right, str(found)
    assert found.rejects
    assert not secrets_in(tmp_path, keys), "a log or a checkpoint has a secret"
    assert not secrets_in(lake.store.data / BUCKET, keys), "a table has a secret"
