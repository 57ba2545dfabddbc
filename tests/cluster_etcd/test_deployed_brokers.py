"""The shipped settings files of three brokers start a cluster, by the command of the unit."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.deploy.cluster_files import DEPLOY, NUMBERS, systemd_file
from tests.oracle.etcd_server import DEBIAN, EtcdCluster
from tests.oracle.running_broker import free_port

pytestmark = pytest.mark.etcd

ROOT = Path(__file__).resolve().parents[2]
SECONDS_MAX = 60.0


def unit_command(number: int) -> list[str]:
    """The command of `penstock@<number>`, with this interpreter and the file as it is shipped."""
    unit = (DEPLOY / "systemd" / "penstock@.service").read_text()
    found = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert found is not None
    program, *words = shlex.split(found[1].replace("%i", str(number)))
    assert program == "/opt/penstock/bin/penstock"
    installed = f"/etc/penstock/{systemd_file(number).name}"
    assert installed in words
    given = [str(systemd_file(number)) if word == installed else word for word in words]
    return [sys.executable, "-m", "penstock", *given]


@contextmanager
def broker(number: int, folder: Path, etcd: str, port: int) -> Iterator[None]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PENSTOCK_ADMIN__ENABLED": "false",
        # Ports of this machine that are free, instead of those of the file.
        "PENSTOCK_CLUSTER__ETCD": etcd,
        "PENSTOCK_LISTENER__PORT": str(port),
        "PENSTOCK_CLUSTER__LISTEN_PORT": "0",
        "PENSTOCK_NODE__DATA_DIR": str(folder / str(number)),
    }
    with (folder / f"log-{number}").open("w") as log:
        process = subprocess.Popen(
            unit_command(number), stdout=log, stderr=subprocess.STDOUT, env=environment
        )
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS_MAX) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(180)
def test_the_files_of_the_units_start_a_cluster(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", members=3, version=DEBIAN) as etcd, ExitStack() as stack:
        ports = [free_port() for _ in NUMBERS]
        for number, port in zip(NUMBERS, ports, strict=True):
            stack.enter_context(broker(number, tmp_path, ",".join(etcd.endpoints), port))
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        deadline = time.monotonic() + SECONDS_MAX
        while len(admin.list_topics(timeout=SECONDS_MAX).brokers) < len(NUMBERS):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        admin.create_topics([NewTopic("t", 3)])["t"].result(SECONDS_MAX)
        partitions = admin.list_topics("t", timeout=SECONDS_MAX).topics["t"].partitions
        assert all(sorted(one.replicas) == [1, 2, 3] for one in partitions.values())
        assert all(one.leader in one.replicas for one in partitions.values())
