"""Closed and broken standard streams: no traceback, and no output into another file."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        yield running


def in_shell(line: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run `penstock` in a shell: `{}` of the line is the command with these words."""
    command = '"$@"'
    return subprocess.run(
        ["/bin/sh", "-c", line.format(command), "sh", sys.executable, "-m", "penstock", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "is_shown"),
    [
        ("{} >&-", False),
        ("{} <&-", True),
        ("{} 2>&-", True),
        ("{} <&- >&- 2>&-", False),
        ("{} --color >&-", False),
    ],
)
def test_closed_streams_are_no_failure(broker: Broker, line: str, is_shown: bool) -> None:
    """`penstock topic list >&-` ended with a traceback, and a socket got descriptor 1."""
    done = in_shell(line, "topic", "list", "--bootstrap-server", broker.bootstrap_server)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("orders" in done.stdout) == is_shown


def test_help_and_version_into_a_closed_stream() -> None:
    for word in ("--help", "version"):
        done = in_shell("{} >&-", word)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_failure_keeps_its_code_when_nobody_reads_the_message() -> None:
    done = in_shell("{} 2>&-", "topic", "list", "--bootstrap-server", "127.0.0.1:1")
    assert (done.returncode, done.stdout, done.stderr) == (3, "", "")
    done = in_shell("{{ {} 2>&1 >/dev/null; echo $? >&2; }} | :", "topci")
    assert done.stderr == "2\n"


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """Output would else be written into the first file or socket that the command opens."""
    code = (
        "import sys\nfrom penstock.cli.streams import open_missing_streams\n"
        "open_missing_streams()\n"
        f"opened = open({str(tmp_path / 'numbers')!r}, 'w')\n"
        "print('lost', flush=True); print('lost', file=sys.stderr)\n"
        "opened.write(str(opened.fileno() > 2) + sys.stdin.read())"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, code], check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "numbers").read_text() == "True"


def test_produce_needs_its_input(broker: Broker) -> None:
    """Closed input is not the same as input that ended: nothing would be sent, with success."""
    words = ("produce", "orders", "--bootstrap-server", broker.bootstrap_server)
    done = in_shell("{} <&-", *words)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: standard input is closed.",
        "hint: Pipe lines into the command, or name a --file.",
    ]
    assert in_shell("{} </dev/null", *words).stdout == "0 records sent to orders\n"


@pytest.mark.parametrize("style", ["--plain", "--color"])
def test_a_reader_that_left_is_no_failure(broker: Broker, style: str) -> None:
    """Rich ends the process with 1 by itself; plain output and tables must not differ."""
    words = ("topic", "list", style, "--bootstrap-server", broker.bootstrap_server)
    done = in_shell("{{ {}; echo $? >&2; }} | :", *words)
    assert done.stderr == "0\n"


def test_output_that_cannot_be_written_is_told_once() -> None:
    done = in_shell("{} >/dev/full", "version")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: No space left on device"
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
