"""A log that is found damaged while the broker runs: its reader, metrics, status and log say so."""

import httpx
import pytest

from penstock.core.settings.config import BrokerConfig
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from penstock.testing.faulty_disk import FaultyDisk
from penstock.testing.memory_disk import MemoryDisk
from tests.broker.handlers.asker import Asker, batch_of

TOPIC = "orders"


def status_of(broker: Broker) -> list[tuple[str, str]]:
    answer = httpx.get(
        f"http://127.0.0.1:{broker.admin_port}/api/v1/status", timeout=30, trust_env=False
    )
    return [(reason["code"], reason["message"]) for reason in answer.json()["reasons"]]


def test_status_and_metrics_tell_of_it_with_one_number(caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk(MemoryDisk())
    settings = BrokerConfig(port=0, storage="memory", admin_port=0)
    with Broker(settings, filesystem=disk) as broker, Asker(broker.port) as asker:
        asker.create(TOPIC)
        assert asker.produce(TOPIC, batch_of(b"whole")).error_code == ErrorCode.NONE
        assert status_of(broker) == []
        (path,) = {
            path
            for operation, path in disk.operations
            if operation == "write" and path.endswith(".log") and f"/{TOPIC}-0/" in path
        }
        disk.open_file(path).write_at(b"damage", 70)
        disk.is_cold = True
        assert asker.fetch(TOPIC, 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.metrics()["partitions_offline"] == 1
        ((code, message),) = status_of(broker)
        assert code == "partitions-damaged"
        assert message.startswith("1 partition is not served")
    assert f"{TOPIC}-0" in caplog.text
