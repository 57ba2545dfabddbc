"""The guides' examples, run as they are printed, in their order, on a broker of their own.

In a console block a line after `$ ` is a command and the lines below are its output, on both
streams. Only values that always differ are not compared: addresses, ids of topics, and in tables of
transactions the numbers that a broker chooses. Pages about Spark, tables and metrics have tests of
their own.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = pytest.mark.interop

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [
    "index.md",
    "guides/command-line.md",
    "guides/exactly-once.md",
    "guides/first-topic.md",
    "guides/groups.md",
    "guides/migrating.md",
    "guides/quick-start.md",
    "guides/quotas.md",
]
ADDRESS = "localhost:9092"
BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)
COORDINATOR = re.compile(r"coordinator \S+ \(\d+\)")
TOPIC_ID = re.compile(r"\bid [\w-]{22}\b")
NUMBER = re.compile(r"-?\d[\d:.TZ-]*")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with penstock_broker(tmp_path / "broker") as running:
        yield running


def commands(block: str) -> Iterator[tuple[str, str]]:
    """Each command of a block with what it prints."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def run(command: str, bootstrap: str, folder: Path) -> str:
    binaries = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PENSTOCK_BOOTSTRAP_SERVER": bootstrap,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def compared(text: str, command: str) -> list[str]:
    """The lines of it, without what may differ."""
    if command.startswith("penstock txn"):
        return [" ".join(NUMBER.sub("0", line).split()) for line in text.splitlines()]
    told = TOPIC_ID.sub("id", COORDINATOR.sub("coordinator", text))
    return told.splitlines()


@pytest.mark.parametrize("page", PAGES)
def test_every_example_does_what_it_says(page: str, broker: RunningBroker, tmp_path: Path) -> None:
    text = (DOCS / page).read_text()
    names: dict[str, object] = {}  # a program's objects, such as an open transaction, stay
    for language, block in BLOCK.findall(text):
        if language == "python":
            exec(block.replace(ADDRESS, broker.bootstrap), names)
            continue
        for command, printed in commands(block):
            if command.startswith("penstock serve"):
                continue
            found = run(command, broker.bootstrap, tmp_path)
            assert compared(found, command) == compared(printed, command), f"{page}: {command}"
