"""Real clients under faults, and no anomaly that is not allowed (marker `chaos`).

CI runs a seeded sample of each mode on Penstock; PENSTOCK_PROOF=1 runs ten times three minutes.
PENSTOCK_SEED changes the choices. The workload itself is held to Apache Kafka by
`test_against_kafka` (marker `interop`): a failure there is a fault of the workload.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.loop_disk import LoopDisk
from tests.crash.rounds import IS_PROOF, seed_of_this_run
from tests.histories.brokers import history_penstock
from tests.histories.plan import Library, Plan
from tests.histories.run import KEPT, require_valid, run_history

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

SECONDS = 180.0 if IS_PROOF else 6.0
PAUSE_SECONDS = 6.0 if IS_PROOF else 1.5
ALL_FAULTS = ("kill-broker", "stop-broker", "power-cut", "kill-client", "stop-client", "zombie")
MIXED: tuple[Library, ...] = ("confluent-kafka", "kafka-python", "aiokafka")
EXACTLY_ONCE: tuple[Library, ...] = ("confluent-kafka", "confluent-kafka", "kafka-python")
"""Without aiokafka, which does not say who commits positions in a transaction."""
RDKAFKA: tuple[Library, ...] = ("confluent-kafka",) * 3
UPHEAVAL: dict[str, object] = {
    "libraries": RDKAFKA,
    "topics": 4,
    "faults": ("kill-broker", "power-cut", "kill-client", "stop-client"),
    "upheavals": ("delete-records", "retention", "compaction", "settings", "recreate"),
    "has_old_timestamps": True,
    "pause_seconds": 1.0 if IS_PROOF else 0.25,
}
"""A backfill, while operators change settings and remove records and topics."""
UPHEAVAL_MODES: tuple[dict[str, object], ...] = (
    {},
    {"in_transactions": True},
    {"in_transactions": True, "via": "subscribe"},
)


def plans() -> list[Plan]:
    """Every mode once, and in the proof those with most parts in them once more."""
    seed = seed_of_this_run()
    usual = Plan(seed=seed, seconds=SECONDS, pause_seconds=PAUSE_SECONDS, faults=ALL_FAULTS)
    modes: list[dict[str, object]] = [
        {"libraries": MIXED},
        {"libraries": MIXED, "in_transactions": True},
        {"libraries": MIXED, "via": "subscribe"},
        {"libraries": EXACTLY_ONCE, "via": "subscribe", "in_transactions": True},
        {"libraries": RDKAFKA, "via": "subscribe", "protocol": "consumer"},
        {
            "libraries": RDKAFKA,
            "via": "subscribe",
            "protocol": "consumer",
            "in_transactions": True,
        },
    ]
    made = [_changed(usual, mode) for mode in modes]
    again = [_changed(usual, {**mode, "seed": seed + 1}) for mode in (*modes[1:4], modes[5])]
    upset = [_changed(usual, {**UPHEAVAL, **mode}) for mode in UPHEAVAL_MODES]
    return made + again + upset if IS_PROOF else [made[1], made[3], made[4], upset[0]]


def _changed(plan: Plan, mode: dict[str, object]) -> Plan:
    return dataclasses.replace(plan, **mode)  # type: ignore[arg-type]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    made = LoopDisk(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("plan", plans(), ids=lambda plan: plan.name)
def test_no_history_has_a_forbidden_anomaly(plan: Plan, disk: LoopDisk, tmp_path: Path) -> None:
    with history_penstock(tmp_path / "broker", data_dir=disk.path / "data") as broker:
        require_valid(run_history(broker, plan, KEPT, disk), broker)
