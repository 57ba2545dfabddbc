"""A Dagster asset: each materialization writes the new records of a topic into its table.

It runs the command, so Dagster's environment needs no PySpark: `PENSTOCK` names the command of the
environment that has it, and `ORDERS_DEFINITION` the definition. Each materialization goes on where
the table ends, so it may be repeated or killed at any time. Two drivers at once would stop each
other: the pool lets one run at a time, `dagster instance concurrency set penstock_orders 1`.

The numbers of records and of rejects are metadata of the materialization. Too many bad records fail
it without a retry: the same run again would find no new records and succeed.
"""

import json
import os
import subprocess

import dagster as dg

PENSTOCK = os.environ.get("PENSTOCK", "penstock")
DEFINITION = os.environ.get("ORDERS_DEFINITION", "/etc/penstock/orders.toml")
WRONG_DEFINITION, BAD_RECORDS = 2, 7


@dg.asset(
    pool="penstock_orders",
    retry_policy=dg.RetryPolicy(max_retries=3, delay=60),
    kinds={"kafka", "table"},
)
def orders(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
    """Rows of the topic `orders`."""
    command = [PENSTOCK, "table", "run", DEFINITION, "--once", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    context.log.info(done.stderr)
    if done.returncode:
        raise dg.Failure(
            f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-1_000:]}",
            allow_retries=done.returncode not in {WRONG_DEFINITION, BAD_RECORDS},
        )
    totals = json.loads(done.stdout)
    return dg.MaterializeResult(
        metadata={"records": totals["records"], "rejects": totals["rejects"]}
    )


defs = dg.Definitions(
    assets=[orders],
    schedules=[
        dg.ScheduleDefinition(name="orders", target=[orders], cron_schedule="*/15 * * * *"),
    ],
)
