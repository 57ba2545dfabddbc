"""`penstock refresh build` as a command: Spark reads the partitions in its tasks."""

import json
from pathlib import Path

import pytest

from penstock.cli.main import run
from penstock.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_the_command_builds_a_snapshot_and_verifies_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "snapshot"
    with Broker() as broker:
        broker.create_topic("price", partitions=3)
        for number in range(60):
            broker.produce("price", f"v{number}", key=f"k{number % 20}")
        words = ["refresh", "build", "price", "--to", str(place), "--master", "local[2]", "--json"]
        assert run([*words, "--bootstrap-server", broker.bootstrap_server]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["records"], document["partitions"]) == (20, 3)
    assert sum(document["ends"].values()) == 60
    assert run(["refresh", "verify", str(place), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["records"] == 20
    next(place.glob("*.log")).unlink()
    assert run(["refresh", "verify", str(place)]) == 1
    assert "missing" in capsys.readouterr().err
