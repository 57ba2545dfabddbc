"""Debezium leaves out long values that an update does not change, and the tables keep them.

The database has the default replica identity, so updates of rows with long values (TOAST) carry
Debezium's placeholder. Kafka Connect, the pipeline and the broker are killed by kill -9 in turn
(`captured_database`); after each round the table equals the database, row by row.

Keys do not change: with this replica identity their long values are nowhere in the events, and the
guide says so. PENSTOCK_PROOF=1 runs a simulated day.
"""

from pathlib import Path

import pytest

from tests.spark.cdc.captured_database import Case, follow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize(
    "case",
    [
        Case("delta", "penstock", is_partial=True),
        Case("iceberg", "penstock", is_partial=True),
        Case("iceberg", "kafka", is_partial=True),
    ],
    ids=str,
)
def test_the_table_keeps_what_the_database_did_not_send(tmp_path: Path, case: Case) -> None:
    follow(tmp_path, case)
