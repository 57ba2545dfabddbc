"""An Airflow DAG: every quarter of an hour the new records of a topic become rows of its table.

It runs the command, so Airflow's environment needs no PySpark: `PENSTOCK` names the command of the
environment that has it, and `ORDERS_DEFINITION` the definition. Each run goes on where the table
ends, whatever became of the run before, so a task may be repeated or killed at any time. Two
drivers at once would stop each other, so one run of the DAG is active at a time.

Exit codes of the command decide about retries: 2 is a mistake in the definition, and 7 too many bad
records. The same run again would correct neither; after 7 it would find no new records and succeed,
which would hide the failure.
"""

import json
import os
import subprocess
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

PENSTOCK = os.environ.get("PENSTOCK", "penstock")
DEFINITION = os.environ.get("ORDERS_DEFINITION", "/etc/penstock/orders.toml")
LASTING = {2: "the definition has a mistake", 7: "too many records are bad"}


@dag(
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
    tags=["penstock"],
)
def orders_to_table() -> None:
    """Write the new records of the topic into its table."""

    @task
    def run() -> dict[str, Any]:
        command = [PENSTOCK, "table", "run", DEFINITION, "--once", "--json"]
        # Messages go to the log of the task.
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode in LASTING:
            reason = LASTING[done.returncode]
            raise AirflowFailException(f"{DEFINITION}: {reason}; the log of the task names it")
        done.check_returncode()
        totals: dict[str, Any] = json.loads(done.stdout)
        return totals

    run()


orders_to_table()
