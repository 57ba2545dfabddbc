"""A registry, a root, a shop and its table on this machine: prices, an outage, a refresh.

Each step is a command that an operator would type. All processes are stopped at the end.

    python run.py                without the refresh
    python run.py --refresh      with a snapshot that Spark builds: needs PySpark
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from cut_line import Line

HERE = Path(__file__).resolve().parent
PENSTOCK = [sys.executable, "-m", "penstock"]
SECONDS_MAX = 60.0
FIRST = {"tea": 420, "milk": 119, "bread": 349, "salt": 59, "rice": 289}
SECOND = {"tea": 440, "milk": 125}
THIRD = {"tea": 460}


@contextmanager
def process(*words: str, folder: Path, mark: str, **environment: str) -> Iterator[str]:
    """Run a command until the end of the block; yield the word behind `mark` in its first line."""
    with subprocess.Popen(
        [*PENSTOCK, *words],
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        try:
            assert started.stdout is not None
            line = started.stdout.readline()
            assert mark in line, line
            yield line.partition(mark)[2].split()[0]
        finally:
            started.terminate()


def penstock(*words: str, folder: Path, send: str = "") -> str:
    """Run a command; return its output."""
    done = subprocess.run(
        [*PENSTOCK, *words], cwd=folder, input=send, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def until(is_true: Callable[[], bool], reason: str) -> None:
    """Wait for something."""
    deadline = time.monotonic() + SECONDS_MAX
    while not is_true():
        assert time.monotonic() < deadline, reason
        time.sleep(0.2)


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


class Example:
    """The processes and the steps."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        url = stack.enter_context(
            process("registry", "--port", "0", folder=folder, mark=" is ready on ")
        )
        self.operator = ["--registry", url, "--token-file", "registry-data/operator.token"]
        token = self.run("registry", "token", "root-1", *self.operator)
        (folder / "root-1.token").write_text(token)
        self.run("registry", "assign", "root-1", "--role", "ROOT", *self.operator)
        self.run("registry", "topics", "POS", "--down", "prices", *self.operator)

        shops, office, self.admin = free_port(), free_port(), free_port()
        self.line = Line(shops)
        stack.callback(self.line.close)
        settings = (HERE / "root.toml").read_text()
        for written, port in (("9192", shops), ("9193", self.line.port), ("9194", office)):
            settings = settings.replace(written, str(port))
        (folder / "root.toml").write_text(settings)
        self.office = f"127.0.0.1:{office}"
        common = {"PENSTOCK_REGISTRY__URL": url, "PENSTOCK_ADMIN__ENABLED": "false"}
        root = ["serve", "--config", "root.toml", "--data-dir", "root"]
        stack.enter_context(process(*root, folder=folder, mark=" is ready on ", **common))
        common["PENSTOCK_REGISTRY__JOIN_TOKEN_FILE"] = "registry-data/join.token"
        common["PENSTOCK_ADMIN__ENABLED"] = "true"
        common["PENSTOCK_ADMIN__PORT"] = str(self.admin)
        shop = ["serve", "--config", str(HERE / "store.toml"), "--data-dir", "store", "--port", "0"]
        self.shop = stack.enter_context(
            process(*shop, folder=folder, mark=" is ready on ", **common)
        )

    def run(self, *words: str, send: str = "") -> str:
        """Run a command; return its output."""
        return penstock(*words, folder=self.folder, send=send)

    def write(self, prices: dict[str, int]) -> None:
        """Write prices at the root, by the key of the product."""
        lines = "".join(
            f"{sku}|{json.dumps({'sku': sku, 'cents': cents})}\n" for sku, cents in prices.items()
        )
        words = ["produce", "prices", "--key-separator", "|", "--bootstrap-server", self.office]
        self.run(*words, send=lines)

    def records(self, address: str) -> int:
        """Return the number of records that a broker has; 0 without the topic."""
        words = ["consume", "prices", "--bootstrap-server", address]
        done = subprocess.run(
            [*PENSTOCK, *words], cwd=self.folder, capture_output=True, text=True, check=False
        )
        return len(done.stdout.splitlines()) if done.returncode == 0 else 0

    def wait_for(self, count: int) -> None:
        """Wait until the shop has this number of records."""
        until(lambda: self.records(self.shop) >= count, f"the shop does not have {count} records")

    def health(self) -> str:
        """Return the health of the shop's pipe."""
        admin = f"http://127.0.0.1:{self.admin}"
        pipes = json.loads(self.run("pipe", "list", "--admin", admin, "--json"))
        return str(pipes[0]["health"])

    def tree(self) -> str:
        """Return the tree, drawn."""
        return self.run("edge", "tree", *self.operator)


def price(table: str, sku: str, at_least: int | None = None) -> int:
    """Return a price from the table of the shop; wait until it has an offset."""
    query = "" if at_least is None else f"?at_least=0:{at_least}&wait=30"
    with urllib.request.urlopen(f"{table}/prices/{sku}{query}", timeout=60) as answer:
        return int(json.load(answer)["value"]["cents"])


def refresh(example: Example) -> None:
    """Build a snapshot at the root and install it in the shop."""
    snapshot = str(example.folder / "snapshot")
    example.run(
        "refresh", "build", "prices", "--to", snapshot, "--bootstrap-server", example.office
    )
    admin = f"http://127.0.0.1:{example.admin}"
    example.run("refresh", "install", "prices", "--from", snapshot, "--admin", admin)
    until(lambda: example.records(example.shop) == len(FIRST), "the snapshot is not installed")


def main() -> None:
    """Run all steps."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        example = Example(folder, stack)

        example.write(FIRST)
        example.wait_for(len(FIRST))
        print(f"the shop has {len(FIRST)} prices: offset 0 to {len(FIRST)}")
        words = ["materialize", "prices", "--bootstrap", example.shop, "--port", "0"]
        table = stack.enter_context(process(*words, folder=folder, mark=" at "))
        assert price(table, "tea", at_least=len(FIRST) - 1) == FIRST["tea"]
        print(f"the table has tea for {FIRST['tea']}")

        example.line.cut()
        example.write(SECOND)
        until(lambda: example.health() != "HEALTHY", "the pipe does not see the outage")
        assert price(table, "tea") == FIRST["tea"]
        assert example.records(example.shop) == len(FIRST)
        print(f"outage: {len(SECOND)} prices wait at the root, the shop still reads {FIRST['tea']}")

        example.line.mend()
        both = len(FIRST) + len(SECOND)
        assert price(table, "tea", at_least=both - 1) == SECOND["tea"]
        print(f"the line is back: tea is {SECOND['tea']}, the shop has {both} records")

        if "--refresh" in sys.argv[1:]:
            refresh(example)
            example.write(THIRD)
            assert price(table, "tea", at_least=both) == THIRD["tea"]
            print(f"refresh: {both} records became {len(FIRST)}, then tea is {THIRD['tea']}")
        until(lambda: "HEALTHY  lag 0" in example.tree(), "the tree is not healthy")
        print(example.tree(), end="")


if __name__ == "__main__":
    main()
