"""A Spark task's memory does not grow with its range: five gigabytes in half a gigabyte."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.client.calls import NewTopic, send_batches
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.transport.options import parse_client_options
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.oracle.penstock_broker import penstock_broker

pytestmark = [pytest.mark.scale, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
RANGE_BYTES = 5_000_000_000
MEMORY_BYTES = 512 * 1024 * 1024
RECORDS_IN_BATCH = 4_000
VALUE_BYTES = 230
AT = TopicPartition("large", 0)


def fill(cluster: Cluster) -> int:
    """Write the range; the number of its records."""
    records = [Record(key=b"%d" % n, value=b"v" * VALUE_BYTES) for n in range(RECORDS_IN_BATCH)]
    batch = build_batch(records)
    cluster.create_topic(NewTopic(AT.topic, 1))
    (leader,) = cluster.by_leader([AT])
    written = count = 0
    while written < RANGE_BYTES:
        call = send_batches({AT: batch}, acks=-1, timeout_ms=30_000)
        assert cluster.at(leader, call)[AT].error_code == ErrorCode.NONE
        written += len(batch)
        count += RECORDS_IN_BATCH
    return count


def test_five_gigabytes_are_read_in_half_a_gigabyte(tmp_path: Path) -> None:
    with penstock_broker(tmp_path) as broker:
        options = parse_client_options({"bootstrap.servers": broker.bootstrap})
        with open_cluster(options) as cluster:
            count = fill(cluster)
        arguments = [broker.bootstrap, AT.topic, str(count), str(MEMORY_BYTES)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.scale.limited_task", *arguments],
            cwd=ROOT,
            # Arrow's default allocator reserves a gigabyte of addresses, without using it.
            env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)
    assert found["rows"] == count
    assert found["value_bytes"] >= count * VALUE_BYTES
    assert found["peak_bytes"] < MEMORY_BYTES
