"""A librdkafka producer in a process of its own: sends equal records as fast as it can.

    python -m benchmarks.librdkafka_producer BOOTSTRAP TOPIC VALUE_BYTES RECORDS

Guarantees: the clock starts when the connection is warm (one record was acknowledged before) and
stops when every record is acknowledged; any failed delivery ends it with an error. One JSON object
is printed. The settings are for throughput; all others are librdkafka's defaults, for example no
compression and no idempotence.

The figures depend on librdkafka as much as on the broker: it needs about 3 CPU-seconds for a GB of
1-KB records. The raw client measures the broker's limit, this one the throughput of a user.
"""

import json
import os
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

SETTINGS: dict[str, str | int | bool] = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_048_576,
    "delivery.report.only.error": True,
}
"""Batches up to the broker's default limit of 1 MiB, and a queue that is rarely full."""

CALL_RECORDS = 1_000
"""Records handed over in one call, so that Python costs little."""

TIMEOUT_SECONDS = 120
"""Far more than any size here needs; a longer run is an error."""


def _stop_on_error(error: KafkaError | None, _message: Message) -> None:
    if error is not None:
        raise SystemExit(f"a delivery failed: {error}")


def send(bootstrap: str, topic: str, value_bytes: int, records: int) -> dict[str, float]:
    """Produce, wait for every acknowledgement, and return the times."""
    producer = Producer({"bootstrap.servers": bootstrap, "on_delivery": _stop_on_error, **SETTINGS})
    value = os.urandom(value_bytes)
    producer.produce(topic, value, partition=0)
    if producer.flush(30) != 0:
        raise SystemExit("the first record was not acknowledged in 30 s")
    cpu_before = time.process_time()
    begun = time.perf_counter()
    sent = 0
    while sent < records:
        messages = [{"value": value} for _ in range(min(CALL_RECORDS, records - sent))]
        accepted = producer.produce_batch(topic, messages, partition=0)
        sent += accepted
        if time.perf_counter() - begun > TIMEOUT_SECONDS:
            raise SystemExit(f"only {sent} of {records} records accepted in {TIMEOUT_SECONDS} s")
        producer.poll(0 if accepted == len(messages) else 0.005)
    if producer.flush(TIMEOUT_SECONDS) != 0:
        raise SystemExit(f"not every record was acknowledged in {TIMEOUT_SECONDS} s")
    return {
        "seconds": time.perf_counter() - begun,
        "records": records + 1,
        "bytes": records * value_bytes,
        "client_cpu_seconds": time.process_time() - cpu_before,
    }


def main() -> None:
    """Read the arguments, send, print."""
    bootstrap, topic, value_bytes, records = sys.argv[1:]
    print(json.dumps(send(bootstrap, topic, int(value_bytes), int(records))))


if __name__ == "__main__":
    main()
