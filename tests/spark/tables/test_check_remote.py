"""`check` with a catalog and brokers elsewhere: each problem is a step, and hides no other.

Nothing listens at the addresses of these definitions; real ones are in `test_lakehouse_guide`.
"""

from penstock.spark.tables.definition.model import PipelineDefinition
from penstock.spark.tables.definition.reader import read_definition
from penstock.spark.tables.inspection.check import Check, Outcome, check_pipeline

NOWHERE = "127.0.0.1:9"


def definition(options: dict[str, str], catalog: dict[str, str]) -> PipelineDefinition:
    return read_definition(
        {
            "pipeline": {"name": "orders", "bootstrap_servers": NOWHERE, "checkpoint": "/tmp/c"},
            "source": {"topics": ["orders"], "options": options},
            "table": {"format": "iceberg", "name": "shop.orders", "catalog": catalog},
            "value": {"format": "json", "schema": "id bigint"},
        },
        "orders.toml",
    )


def steps(options: dict[str, str], catalog: dict[str, str]) -> dict[str, Check]:
    report = check_pipeline(definition(options, catalog), has_transform=False)
    return {one.name: one for one in report.checks}


REST = {"type": "rest", "uri": f"http://{NOWHERE}", "warehouse": "lake"}
LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": "alice",
    "kafka.sasl.password": "${env:PENSTOCK_NO_SUCH_VARIABLE}",
}


def test_the_warehouse_of_a_rest_catalog_is_a_name() -> None:
    """It was reported as a folder that can be created."""
    found = steps({}, REST)["warehouse"]
    assert found.outcome is Outcome.SKIPPED
    assert found.text.startswith("lake is a name in the catalog")


def test_a_password_that_is_not_set_hides_no_other_problem() -> None:
    found = steps(LOGIN, REST)
    assert found["broker"].outcome is Outcome.FAILED
    assert "PENSTOCK_NO_SUCH_VARIABLE is not set" in found["broker"].text
    assert found["topics"].outcome is Outcome.SKIPPED
    assert found["schema"].outcome is Outcome.GOOD
    assert "Connection refused" in found["table"].text
    assert found["table"].text.endswith("Start it, or correct it.")
