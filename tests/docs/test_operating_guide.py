"""The guide for operators cannot go stale: its commands run in their order, on their own broker.

All output of a command is compared, except values that always differ: ids, addresses, the version,
times, and how full the disk is. The table of reasons is the one in `admin.health`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.admin import health
from penstock.admin.app import OPERATIONS
from tests.docs.test_guides import commands
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import free_port

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "operating.md").read_text()
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
VARYING = (
    (r'"topic_id":"[^"]+"', '"topic_id":"ID"'),
    (r"cluster \S+", "cluster ID"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"Penstock [^,]+, up .*", "Penstock VERSION"),
    (r"^disk used .*", "disk used"),
)


def same_form(text: str) -> list[str]:
    """The lines without what cannot be the same, and without the width of columns."""
    for pattern, word in VARYING:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [" ".join(line.split()) for line in text.splitlines()]


def run(command: str, admin: str, bootstrap: str) -> str:
    binaries = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", command.replace("localhost:8080", admin)],
        env={
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PENSTOCK_BOOTSTRAP_SERVER": bootstrap,
            "PENSTOCK_ADMIN_URL": f"http://{admin}",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


@pytest.mark.interop
def test_every_command_does_what_it_says(tmp_path: Path) -> None:
    admin = f"127.0.0.1:{free_port()}"
    environment = {
        "PENSTOCK_ADMIN__ENABLED": "true",
        "PENSTOCK_ADMIN__PORT": admin.rpartition(":")[2],
    }
    with penstock_broker(tmp_path / "broker", environment=environment) as broker:
        run("sleep 1.5", admin, broker.bootstrap)  # the disk is looked at each second
        for block in BLOCK.findall(GUIDE):
            for command, printed in commands(block):
                if not command.startswith("penstock serve"):
                    found = run(command, admin, broker.bootstrap)
                    assert same_form(found) == same_form(printed), command


def test_every_reason_is_in_the_guide() -> None:
    source = Path(health.__file__).read_text()
    codes = set(re.findall(r'^            "([a-z-]+)",$', source, flags=re.MULTILINE))
    assert len(codes) >= 9
    for code in codes:
        assert f"`{code}`" in GUIDE, code


def test_every_operation_is_in_the_guide() -> None:
    for one in OPERATIONS:
        tail = one.path.rpartition("/offsets")[1:] if one.path.endswith("/reset") else (one.path,)
        assert "".join(tail) in GUIDE, one.name
