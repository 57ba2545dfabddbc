"""A consumer in a process of its own, for kills and rebalances.

It appends each handled record to a file. Topic, group, mode and file are variables of the
environment.
"""

import json
import os
import time

import penstock

SEEN = os.open(os.environ["SEEN_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0"))


@penstock.consumer(
    topic=os.environ["TOPIC"],
    group=os.environ["GROUP"],
    mode="queue" if os.environ.get("MODE") == "queue" else "fanout",
    dead_letter=f"dlq.{os.environ['TOPIC']}",
    settings=json.loads(os.environ.get("SETTINGS", "{}")),
    retry=penstock.RetryPolicy(attempts=3, backoff="5ms..50ms", in_place="5ms"),
)
def handle(record: penstock.ConsumerRecord) -> None:
    """Note the record; values with "poison" always fail."""
    time.sleep(PAUSE_SECONDS)
    if record.text().startswith("poison"):
        raise ValueError("poison")
    os.write(SEEN, f"{record.partition} {record.offset} {record.text()}\n".encode())
