"""The guide from a topic to a table cannot go stale: its commands run, its keys are the reader's.

Commands run in their order, in a folder of their own, on a broker of their own; files that the
guide shows are written first. Standard output is compared; values that always differ are replaced
by a word in both: times, sizes, ids.
"""

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from penstock.spark.tables.definition import (
    catalogs,
    change_definition,
    operation_keys,
    registry_section,
    state_section,
    table_section,
)
from penstock.spark.tables.definition import reader as definition_reader
from tests.docs.test_guides import ADDRESS, commands
from tests.oracle.penstock_broker import penstock_broker

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "topic-to-table.md").read_text()
FOLDER = "/tmp/shop"
PIECE = re.compile(
    r"`(?P<file>[\w.]+\.(?:toml|py))`[^`]*\n\n```(?:toml|python)\n(?P<text>.*?)```"
    r"|```console\n(?P<block>.*?)```",
    re.DOTALL,
)
SECONDS_MAX = 240
VARYING = (
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)", "TIME"),
    (r"cluster \S+", "cluster CLUSTER"),
    (r"[\d.]+ (ms|s|min|hours|days) ago", "AGO"),
    (r"[\d.]+ (B|KiB|MiB)\b", "SIZE"),
)


def same_form(text: str) -> list[str]:
    """The lines without what cannot be the same, and without the width of columns."""
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text)
    return [" ".join(line.split()) for line in text.splitlines()]


def run(command: str, folder: Path, bootstrap: str) -> subprocess.CompletedProcess[str]:
    binaries = Path(sys.executable).parent
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PENSTOCK_BOOTSTRAP_SERVER": bootstrap,
            "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts sooner
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


@pytest.mark.spark
@pytest.mark.timeout(1_800)
def test_every_command_does_what_it_says(tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    with penstock_broker(tmp_path / "broker") as broker:

        def here(text: str) -> str:
            return text.replace(FOLDER, str(folder)).replace(ADDRESS, broker.bootstrap)

        for piece in PIECE.finditer(GUIDE):
            if piece["file"] is not None:
                (folder / piece["file"]).write_text(here(piece["text"]))
                continue
            for command, printed in commands(piece["block"]):
                if command.startswith("penstock serve"):
                    continue
                done = run(here(command), folder, broker.bootstrap)
                assert same_form(done.stdout) == same_form(here(printed)), (
                    f"{command}\n{done.stdout}\n{done.stderr}"
                )
                assert done.returncode == 0, f"{command}\n{done.stderr}"


def test_the_guide_has_files_and_commands() -> None:
    pieces = list(PIECE.finditer(GUIDE))
    assert {piece["file"] for piece in pieces if piece["file"]} == {
        "orders.toml",
        "query.py",
        "customers.toml",
        "orders.py",
    }
    printed = [
        command for piece in pieces if piece["block"] for command, _ in commands(piece["block"])
    ]
    assert sum(command.startswith("penstock table") for command in printed) >= 10


def keys_of(section: str, function: str, module: ModuleType = definition_reader) -> set[str]:
    source = inspect.getsource(getattr(module, function))
    return {f"{section}.{key}" for key in re.findall(r'section\.[a-z_]+\(\s*"(\w+)"', source)}


def test_every_key_is_in_the_guide_and_no_other() -> None:
    known = {
        *keys_of("pipeline", "_pipeline"),
        *keys_of("pipeline", "read_operation", operation_keys),
        *keys_of("source", "_source"),
        *keys_of("table", "read_table", table_section),
        *keys_of("table", "_table_name", table_section),
        *keys_of("table", "read_catalog", catalogs),
        *keys_of("table", "read_path", catalogs),
        *keys_of("value", "_value"),
        *keys_of("value", "read_changes", change_definition),
        *keys_of("value", "read_registry", registry_section),
        *keys_of("value", "_sequence_by", change_definition),
        *keys_of("expectations", "_expectations"),
        *keys_of("trigger", "_trigger"),
        *keys_of("maintenance", "_maintenance"),
        *keys_of("state", "read_state", state_section),
    }
    table = GUIDE.split("\n## Every key\n")[1]
    told = set(
        re.findall(
            r"`([a-z]+\.[a-z_]+)`",
            "\n".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `")),
        )
    )
    assert told == known
