"""A Penstock cluster for a foreign suite: one member of etcd and several brokers on loopback.

Guarantees: each broker has answered when the block begins, and all of them know each other; all
processes are stopped when it ends. The brokers have the same settings and different ids.

It does NOT stop or start brokers in between: `compat.kafka_it.launch` runs suites that do.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient

from tests.oracle.etcd_server import DEBIAN, EtcdCluster
from tests.oracle.penstock_broker import penstock_broker

REGISTRATION_SECONDS_MAX = 30.0
POLL_SECONDS = 0.05


@contextmanager
def penstock_cluster(folder: Path, settings: Mapping[str, str], count: int) -> Iterator[str]:
    """Run `count` brokers with these variables of the environment; yield their addresses."""
    with ExitStack() as stack:
        etcd = stack.enter_context(EtcdCluster(folder / "etcd", members=1, version=DEBIAN))
        addresses = []
        for broker_id in range(1, count + 1):
            own = {
                **settings,
                "PENSTOCK_NODE__ID": str(broker_id),
                "PENSTOCK_CLUSTER__ETCD": ",".join(etcd.endpoints),
                "PENSTOCK_CLUSTER__LISTEN_PORT": "0",
            }
            broker = penstock_broker(folder / f"broker-{broker_id}", environment=own)
            broker.start()
            stack.callback(broker.stop)
            addresses.append(broker.bootstrap)
        bootstrap = ",".join(addresses)
        _wait_for_brokers(bootstrap, count)
        yield bootstrap


def _wait_for_brokers(bootstrap: str, count: int) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + REGISTRATION_SECONDS_MAX
    while len(client.list_topics(timeout=REGISTRATION_SECONDS_MAX).brokers) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"fewer than {count} brokers registered in {REGISTRATION_SECONDS_MAX} s; the "
                "files broker.log in the folder of each broker say why"
            )
        time.sleep(POLL_SECONDS)
