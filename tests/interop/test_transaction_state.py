"""The stored state of transactions: Kafka's own tool reads it, and both brokers store the same.

A producer commits, aborts and goes; the broker stops. `DumpLogSegments` then decodes
`__transaction_state` as Penstock wrote it, and as Apache Kafka did.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.kafka_jars import run_kafka_tool
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

SECONDS_MAX = 60.0
TIMEOUT_MS = 54_321
STATE_PARTITIONS = 3
STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
"""By number."""
RECORD = re.compile(r"\| offset: \d+ .* key: (\{.*\}) payload: (\{.*\})")


def converse(broker: RunningBroker) -> None:
    """One transaction that is committed, one that is aborted."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": "teller",
            "transaction.timeout.ms": TIMEOUT_MS,
        }
    )
    producer.init_transactions(SECONDS_MAX)
    for commits in (True, False):
        producer.begin_transaction()
        producer.produce("ledger", b"entry")
        producer.flush(SECONDS_MAX)
        if commits:
            producer.commit_transaction(SECONDS_MAX)
        else:
            producer.abort_transaction(SECONDS_MAX)


def decoded(data_dir: Path) -> str:
    """What Kafka's tool prints of the whole topic."""
    printed = ""
    for partition in range(STATE_PARTITIONS):
        files = sorted((data_dir / f"__transaction_state-{partition}").glob("*.log"))
        printed += run_kafka_tool(
            "org.apache.kafka.tools.DumpLogSegments",
            ["--transaction-log-decoder", "--files", ",".join(map(str, files))],
        )
    return printed


def partitions_of(value: dict[str, Any]) -> list[str]:
    return [
        f"{topic['topic']}-{partition}"
        for topic in value["transactionPartitions"] or ()
        for partition in topic["partitionIds"]
    ]


@pytest.mark.parametrize("kind", ["kafka", "penstock"])
def test_kafkas_tool_reads_the_state_of_transactions(tmp_path: Path, kind: str) -> None:
    made = (
        kafka_broker(
            tmp_path, properties={"transaction.state.log.num.partitions": str(STATE_PARTITIONS)}
        )
        if kind == "kafka"
        else penstock_broker(
            tmp_path,
            environment={"PENSTOCK_TRANSACTIONS__STATE_PARTITIONS": str(STATE_PARTITIONS)},
        )
    )
    with made as broker:
        converse(broker)
    printed = decoded(made.data_dir)
    assert "isvalid: true" in printed
    assert "isvalid: false" not in printed
    records = [tuple(map(json.loads, pair)) for pair in RECORD.findall(printed)]
    assert len(records) == printed.count("| offset: ")
    assert all(key == {"type": "0", "data": {"transactionalId": "teller"}} for key, _ in records)
    values = [value["data"] for _, value in records]
    assert {value["transactionTimeoutMs"] for value in values} == {TIMEOUT_MS}
    # The end of the last one may not have been written before the stop: markers take their time.
    told = [(STATES[value["transactionStatus"]], partitions_of(value)) for value in values]
    story = [
        ("Empty", []),
        ("Ongoing", ["ledger-0"]),
        ("PrepareCommit", ["ledger-0"]),
        ("CompleteCommit", []),
        ("Ongoing", ["ledger-0"]),
        ("PrepareAbort", ["ledger-0"]),
        ("CompleteAbort", []),
    ]
    assert told in (story, story[:-1])
