"""Settings of a broker that were changed over the wire: kept, and stronger than the file."""

from pathlib import Path

from penstock.core.settings import Settings, settings_of
from penstock.protocol.error_codes import ErrorCode
from penstock.testing import Broker
from tests.broker.handlers.asker import Asker, batch_of
from tests.broker.handlers.configs import BROKER, DELETE, SET, TOPIC, increment
from tests.broker.handlers.test_describe_configs import ask, configs_in

OWN, STATIC = 2, 4


def on_disk(folder: Path, **defaults: int) -> Settings:
    return settings_of(
        {
            "listener.port": 0,
            "node.data_dir": str(folder),
            **{f"topic_defaults.{name}": value for name, value in defaults.items()},
        }
    )


def retention(asker: Asker, topic: str) -> tuple[str | None, int]:
    found = configs_in(ask(asker, TOPIC, topic, ("retention.ms",)))["retention.ms"]
    return found.value, found.config_source


def test_a_change_outlives_the_broker_and_wins_over_its_file(tmp_path: Path) -> None:
    edit = ("log.retention.ms", SET, "8000")
    with Broker(on_disk(tmp_path, retention_ms=5_000)) as broker, Asker(broker.port) as asker:
        asker.create("orders")
        assert retention(asker, "orders") == ("5000", STATIC)
        assert increment(asker, BROKER, "1", edit).error_code == ErrorCode.NONE
        assert retention(asker, "orders") == ("8000", OWN)
    with Broker(on_disk(tmp_path, retention_ms=6_000)) as broker, Asker(broker.port) as asker:
        assert retention(asker, "orders") == ("8000", OWN)
        asker.create("payments")
        assert retention(asker, "payments") == ("8000", OWN)
        gone = increment(asker, BROKER, "1", ("log.retention.ms", DELETE, None))
        assert gone.error_code == ErrorCode.NONE
        assert retention(asker, "orders") == ("6000", STATIC)


def test_logs_that_run_follow(tmp_path: Path) -> None:
    with Broker(on_disk(tmp_path)) as broker, Asker(broker.port) as asker:
        asker.create("orders")
        edit = ("log.segment.bytes", SET, "1048576")
        assert increment(asker, BROKER, "", edit).error_code == ErrorCode.NONE
        for _ in range(3):
            assert asker.produce("orders", batch_of(b"x" * 600_000)).error_code == ErrorCode.NONE
        segments = list((tmp_path / "orders-0").glob("*.log"))
        assert len(segments) == 3
