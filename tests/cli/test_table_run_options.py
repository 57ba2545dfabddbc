"""The options of `penstock table run` about restarts and metrics, without Spark."""

from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli.table import run as run_module
from penstock.cli.table.run import FOREVER, RestartCount, RunWish, run
from penstock.spark.tables.definition.model import OperationSettings, PipelineDefinition
from penstock.spark.tables.definition.reader import read_definition

DEFINITION = read_definition(
    {
        "pipeline": {"name": "o", "bootstrap_servers": "b:1", "checkpoint": "/c"},
        "source": {"topics": ["o"]},
        "table": {"format": "delta", "name": "s.o", "catalog": {"warehouse": "/w"}},
    },
    "test",
)


def with_port(port: int, host: str = "127.0.0.1") -> PipelineDefinition:
    settings = OperationSettings(metrics_port=port, metrics_host=host)
    return replace(DEFINITION, pipeline=replace(DEFINITION.pipeline, operation=settings))


def address(
    definition: PipelineDefinition, port: int | None = None, host: str | None = None
) -> tuple[str, int] | None:
    return run_module._metrics_address(definition, RunWish(False, None, port, host))


def test_the_address_of_metrics_is_that_of_the_options_or_of_the_definition() -> None:
    assert address(DEFINITION) is None
    assert address(with_port(9464)) is None
    assert address(DEFINITION, 9000) == ("127.0.0.1", 9000)
    assert address(with_port(9464, "::1"), 9000) == ("::1", 9000)
    assert address(with_port(9464), host="0.0.0.0") == ("0.0.0.0", 9464)
    with pytest.raises(click.UsageError, match="--metrics-port"):
        address(DEFINITION, host="0.0.0.0")


@pytest.mark.parametrize(("text", "count"), [("0", 0), ("3", 3), ("forever", FOREVER)])
def test_a_number_of_restarts_or_forever(text: str, count: int) -> None:
    assert RestartCount().convert(text, None, None) == count


@pytest.mark.parametrize("text", ["-1", "ever", "1.5"])
def test_any_other_word_is_wrong_usage(text: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(run, [str(tmp_path / "x.toml"), "--restarts", text])
    assert done.exit_code == 2
    words = " ".join(done.output.split())
    assert f"'{text}' is not a whole number from 0 to 1000000, and not `forever`." in words
