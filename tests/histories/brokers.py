"""Brokers for runs of seconds: quick to notice dead clients, with or without guards.

The settings only shorten waits; they switch no promise off. `changes` names safeguards that
`unguarded` takes out before Penstock starts.
"""

import dataclasses
from pathlib import Path

from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

ROOT = Path(__file__).resolve().parents[2]

KAFKA_PROPERTIES = {
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}

PENSTOCK_SETTINGS = """
[groups]
offsets_partitions = 5
initial_rebalance_delay_ms = 0
consumer_session_timeout_ms = 6000
consumer_heartbeat_interval_ms = 500

[transactions]
state_partitions = 5
timeout_check_interval_ms = 500
producer_expiration_check_interval_ms = 200

[log]
retention_check_interval_ms = 200
compaction_check_interval_ms = 300

[topic_defaults]
auto_create = false
"""


def history_kafka(folder: Path) -> RunningBroker:
    """Apache Kafka, not started yet."""
    return kafka_broker(folder, properties=KAFKA_PROPERTIES)


def history_penstock(
    folder: Path, *, data_dir: Path | None = None, changes: str = ""
) -> RunningBroker:
    """Penstock, not started yet; with changes it is the source tree, which can be changed."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "penstock.toml"
    settings.write_text(PENSTOCK_SETTINGS)
    broker = penstock_broker(
        folder,
        arguments=("--config", str(settings)),
        data_dir=data_dir,
        from_source=bool(changes),
    )
    if not changes:
        return broker
    python, _module, _name, *rest = broker.recipe.command
    recipe = dataclasses.replace(
        broker.recipe,
        command=[python, "-m", "tests.histories.unguarded", changes, *rest],
        environment={**broker.recipe.environment, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )
    return RunningBroker(recipe, folder=broker.folder, port=broker.port)
