"""The workload on Apache Kafka: it must find nothing there either (marker `interop`).

No power cuts: Apache Kafka does not sync before it acknowledges, and one node has no replicas.
"""

from pathlib import Path

import pytest

from tests.histories.brokers import history_kafka
from tests.histories.plan import Plan
from tests.histories.run import KEPT, require_valid, run_history

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "plan",
    [
        Plan(seconds=8, pause_seconds=2.5, in_transactions=True, faults=("stop-client", "zombie")),
        Plan(
            seconds=8,
            pause_seconds=2.5,
            via="subscribe",
            in_transactions=True,
            faults=("kill-client", "zombie"),
        ),
    ],
    ids=lambda plan: plan.name,
)
def test_the_workload_finds_nothing_in_kafka(plan: Plan, tmp_path: Path) -> None:
    with history_kafka(tmp_path / "broker") as broker:
        require_valid(run_history(broker, plan, KEPT), broker)
