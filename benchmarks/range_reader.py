"""Throughput of `RangeReader` for a range of a partition, from both brokers.

One topic with one partition is filled with copies of one batch, by the highest number of produce
requests in flight that a client may have. It is then read from its begin to its end: whole stored
batches, nothing decoded. The output is bytes a second, the processor time of client and broker for
each gigabyte, and the client's largest resident memory. With two cores client and broker have one
each.

    PENSTOCK_BROKER_PYTHON=... python -m benchmarks.range_reader --gigabytes 1
"""

import argparse
import os
import resource
import tempfile
import time
from collections import deque
from pathlib import Path

from penstock.client.calls import FetchBounds, NewTopic, send_batches
from penstock.client.cluster import Cluster
from penstock.client.opening import open_cluster
from penstock.client.records.range_reader import RangeReader
from penstock.client.transport.addresses import parse_addresses
from penstock.client.transport.options import ClientOptions
from penstock.core.types import TopicPartition
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

AT = TopicPartition("range", 0)
REQUESTS_UNDER_WAY = 5
VALUE_BYTES = 200
ROUNDS = 3


def fill(cluster: Cluster, total_bytes: int, records_in_batch: int) -> int:
    """Write about this number of bytes; return the end offset."""
    cluster.create_topic(NewTopic(AT.topic, 1))
    cluster.topic(AT.topic, auto_create=True)
    leader = cluster.leaders([AT])[AT].address
    records = [Record(b"k" * 16, os.urandom(VALUE_BYTES)) for _ in range(records_in_batch)]
    batch = build_batch(records)
    batches = max(1, total_bytes // len(batch))
    call = send_batches({AT: batch}, acks=1, timeout_ms=cluster.timeout_ms)
    under_way = deque(cluster.start(leader, call) for _ in range(min(REQUESTS_UNDER_WAY, batches)))
    for number in range(len(under_way), batches + len(under_way)):
        answer = under_way.popleft().result()[AT]
        assert answer.error_code == 0, answer
        if number < batches:
            under_way.append(cluster.start(leader, call))
    return batches * records_in_batch


def measure(broker: RunningBroker, cluster: Cluster, until_offset: int, fetch_bytes: int) -> str:
    """Read everything once; return a line with the figures."""
    bounds = FetchBounds(bytes_max=fetch_bytes, partition_bytes_max=fetch_bytes)
    broker_before = broker.usage().cpu_seconds
    client_before = time.process_time()
    begun = time.perf_counter()
    received = 0
    position = 0
    reader = RangeReader(cluster, AT, 0, until_offset, is_read_committed=True, bounds=bounds)
    for fetched in reader:
        received += len(fetched.data)
        position = fetched.next_offset
    seconds = time.perf_counter() - begun
    assert position == until_offset
    gigabytes = received / 1e9
    return (
        f"{broker.name:9} fetches of {fetch_bytes >> 10:6} KiB: {received / seconds / 1e6:6.0f} "
        f"MB/s, client {(time.process_time() - client_before) / gigabytes:.2f} s/GB, "
        f"broker {(broker.usage().cpu_seconds - broker_before) / gigabytes:.2f} s/GB, "
        f"resident {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10} MiB"
    )


def main() -> None:
    """Measure both brokers, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--records-in-batch", type=int, default=600)
    parser.add_argument("--fetch-mebibytes", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--brokers", nargs="+", default=["penstock", "kafka"])
    chosen = parser.parse_args()
    for name in chosen.brokers:
        make = kafka_broker if name == "kafka" else penstock_broker
        with tempfile.TemporaryDirectory() as folder, make(Path(folder)) as broker:
            options = ClientOptions(parse_addresses(broker.bootstrap))
            with open_cluster(options) as cluster:
                until = fill(cluster, int(chosen.gigabytes * 1e9), chosen.records_in_batch)
                for _ in range(ROUNDS):
                    for mebibytes in chosen.fetch_mebibytes:
                        print(measure(broker, cluster, until, mebibytes << 20), flush=True)


if __name__ == "__main__":
    main()
