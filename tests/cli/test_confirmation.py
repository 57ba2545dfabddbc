"""Destructive commands ask; where they cannot ask they refuse before they contact a broker."""

import os
import pty
import subprocess
import sys

import pytest

from penstock.testing import Broker
from tests.cli.conftest import Penstock

NOBODY = ("--bootstrap-server", "127.0.0.1:1")
ABORT = ("txn", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "1")


@pytest.mark.parametrize(
    "words", [("topic", "delete", "orders"), ("group", "delete", "billing"), ABORT]
)
def test_without_a_terminal_they_refuse(penstock: Penstock, words: tuple[str, ...]) -> None:
    """`topic delete < /dev/null` deleted a topic without a question."""
    refused = penstock(*words, *NOBODY)
    assert (refused.code, refused.output) == (2, "")
    problem, hint = refused.errors.splitlines()
    assert problem.startswith("error: nothing was changed: the command cannot ask")
    assert f"`penstock {words[0]} {words[1]} --yes ...`" in hint
    assert penstock(*words, "--yes", *NOBODY).code == 3


@pytest.mark.parametrize(("answer", "code", "is_there"), [(b"n\n", 130, True), (b"y\n", 0, False)])
def test_a_terminal_is_asked(penstock: Penstock, answer: bytes, code: int, is_there: bool) -> None:
    with Broker() as broker:
        broker.create_topic("orders")
        mine, terminal = pty.openpty()
        where = ("--bootstrap-server", broker.bootstrap_server)
        os.write(mine, answer)
        done = subprocess.run(
            [sys.executable, "-m", "penstock", "topic", "delete", "orders", *where],
            stdin=terminal,
            stdout=subprocess.DEVNULL,
            stderr=terminal,
            timeout=60,
            check=False,
        )
        shown = os.read(mine, 4096).decode()
        os.close(mine)
        os.close(terminal)
        assert "Delete orders and all records? [y/N]:" in shown
        assert done.returncode == code
        assert ("orders" in penstock("topic", "list", *where).output) == is_there
