"""The README's commands and programs run as they are printed; its figures are the measured ones.

Only addresses are replaced: the port that everybody uses may be taken on the machine that tests.
"""

import asyncio
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing import Broker
from tests.oracle.running_broker import free_port

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
MEASURED = (ROOT / "benchmarks" / "README.md").read_text()
COMPARED = {
    "Start-up, idle memory": ("cold start to first answer", "memory idle"),
    "One-record requests, both durable, 128 connections, 1 partition": (
        "128 connections, both durable, 1 partition",
    ),
    "One-record requests, Penstock durable, Kafka unsynced, 64 partitions": (
        "128 connections, Penstock durable, 64 partitions",
    ),
    "1-KB records, librdkafka, Penstock durable, Kafka unsynced": (
        "produce 1 KB, librdkafka, Penstock durable, 1 partition",
    ),
}
"""Rows of the README, and the rows of the benchmarks that they repeat."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def block_with(language: str, text: str) -> str:
    (found,) = [block for block in blocks(language) if text in block]
    return found


def message_when_ready() -> str:
    found = re.search(r"it says `(.*?)`", README)
    assert found is not None
    return found[1]


def cells(text: str, label: str) -> list[str]:
    """The cells of a table's row after its label."""
    (found,) = re.findall(rf"^\| {re.escape(label)} \|(.*)\|$", text, re.MULTILINE)
    return [cell.strip() for cell in found.split("|")]


def numbers(text: str) -> list[str]:
    return [number.replace(",", "") for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)]


@pytest.mark.parametrize("label", COMPARED)
def test_the_comparison_repeats_the_benchmarks(label: str) -> None:
    ours, kafkas = cells(README, label)
    _, *medians = zip(*(cells(MEASURED, row)[:3] for row in COMPARED[label]), strict=True)
    for stated, measured in ((kafkas, medians[0]), (ours, medians[1])):
        figures = numbers(re.sub(r"MB/s|requests/s", "", stated))
        for figure, row in zip(figures, measured, strict=True):
            decimals = len(figure.partition(".")[2])
            assert figure == f"{float(numbers(row)[0]):.{decimals}f}"


@pytest.mark.interop
def test_the_five_lines(tmp_path: Path) -> None:
    assert block_with("bash", "penstock serve") == "pip install .\npenstock serve\n"
    lines = block_with("bash", "penstock topic create").strip().splitlines()
    port = free_port()
    python = Path(os.environ.get("PENSTOCK_BROKER_PYTHON", sys.executable))
    environment = {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PENSTOCK_LISTENER__PORT": str(port),
        "PENSTOCK_BOOTSTRAP_SERVER": f"localhost:{port}",
    }
    with subprocess.Popen(
        ["penstock", "serve"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as broker:
        try:
            assert broker.stdout is not None
            ready = broker.stdout.readline()
            assert ready.replace(str(port), "9092").startswith(message_when_ready())
            for line in lines:
                done = subprocess.run(
                    ["bash", "-c", line],
                    cwd=tmp_path,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert done.returncode == 0, f"{line}: {done.stderr}"
        finally:
            broker.terminate()
        assert broker.wait(30) == 0
    assert done.stdout == "hello\n"


@pytest.mark.interop
def test_the_client() -> None:
    program = block_with("python", "confluent_kafka")
    with Broker() as broker:
        exec(program.replace("localhost:9092", broker.bootstrap_server), {})
        assert broker.metrics()["partitions"] == 1


def test_the_broker_in_a_test() -> None:
    seen: list[str] = []
    names: dict[str, Callable[..., None]] = {"run_my_code": seen.append}
    exec(block_with("python", "penstock.testing"), names)
    names["test_my_code"]()
    assert seen


def test_the_embedded_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = block_with("python", "BrokerServer").replace(
        'data_dir="data"', f"data_dir={str(tmp_path)!r}"
    )
    head, body = program.split("\n\n", 1)
    wrapped = f"{head}\nasync def main():\n{textwrap.indent(body, '    ')}"
    names: dict[str, Callable[..., object]] = {}
    exec(wrapped, names)
    asyncio.run(names["main"]())  # type: ignore[arg-type]
    assert re.fullmatch(r"127\.0\.0\.1:\d+\n", capsys.readouterr().out)
