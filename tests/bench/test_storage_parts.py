"""The four figures of a log: their workloads, and one command that measures all of them."""

import json

import pytest
from click.testing import CliRunner, Result

from penstock.bench import Workload
from penstock.bench.storage_parts import parts_of
from penstock.cli.main import penstock
from penstock.testing import Broker


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(penstock, arguments)


def test_each_figure_has_its_kind_and_its_segments() -> None:
    parts = parts_of(Workload(topic_settings={"retention.ms": "1000"}))
    assert {name: one.kind for name, one in parts.items()} == {
        "write": "produce",
        "read active": "consume",
        "read sealed": "consume",
        "lookup": "lookup",
    }
    segments = {name: one.topic_settings.get("segment.bytes") for name, one in parts.items()}
    assert segments == {
        "write": None,
        "read active": "1073741824",
        "read sealed": "1048576",
        "lookup": "1048576",
    }
    assert all(one.topic_settings["retention.ms"] == "1000" for one in parts.values())


@pytest.mark.slow
def test_the_command_names_the_four_figures() -> None:
    with Broker() as broker:
        arguments = ["bench", "storage", "--count", "100", "--warmup", "0"]
        arguments += ["--bootstrap-server", broker.bootstrap_server]
        printed = invoke(*arguments)
        document = json.loads(invoke(*arguments, "--json", "-").stdout)
    assert printed.exit_code == 0
    for name in ("write", "read active", "read sealed", "lookup"):
        assert name in printed.stdout
        assert document[name]["records_per_second"] > 0
