"""PostgreSQL through Debezium into tables of both formats: the table equals the database.

Random changes of every type run while Kafka Connect, the pipeline and the broker are killed by
kill -9 in turn (`captured_database`). Debezium sends events again after a kill, so `sequence_by` is
what keeps the table right.

PENSTOCK_PROOF=1 runs a simulated day: at least 17,280 changes, one every five seconds.
PENSTOCK_CDC_ROUNDS sets the number of rounds, PENSTOCK_SEED the changes.
"""

from pathlib import Path

import pytest

from tests.spark.cdc.captured_database import Case, follow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(3_600)]


@pytest.mark.parametrize(
    "case",
    [
        Case("delta", "penstock"),
        Case("iceberg", "penstock"),
        Case("delta", "kafka"),
        Case("delta", "penstock", has_history=True),
        Case("iceberg", "penstock", has_history=True),
    ],
    ids=str,
)
def test_the_table_equals_the_database(tmp_path: Path, case: Case) -> None:
    follow(tmp_path, case)
