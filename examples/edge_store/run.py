"""A registry, a root and a shop on this machine: five prices reach the shop.

Each step is a command that an operator would type. All processes are stopped at the end.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
PENSTOCK = [sys.executable, "-m", "penstock"]
PRICES = 5
SECONDS_MAX = 60.0


@contextmanager
def process(*words: str, folder: Path, **environment: str) -> Iterator[str]:
    """Run a command until the end of the block; yield the address that its first line names."""
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
            assert " is ready on " in line, line
            yield line.partition(" is ready on ")[2].split()[0]
        finally:
            started.terminate()


def penstock(*words: str, folder: Path, send: str = "") -> str:
    """Run a command; return its output."""
    done = subprocess.run(
        [*PENSTOCK, *words], cwd=folder, input=send, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def prices_at(address: str, folder: Path) -> list[str]:
    """Return the prices that a broker has; none while it does not have the topic."""
    words = ["consume", "prices", "--bootstrap-server", address]
    done = subprocess.run(
        [*PENSTOCK, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout.split() if done.returncode == 0 else []


def main() -> None:
    """Run all steps."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        url = stack.enter_context(process("registry", "--port", "0", folder=folder))
        operator = ["--registry", url, "--token-file", "registry-data/operator.token"]
        token = penstock("registry", "token", "root-1", *operator, folder=folder)
        (folder / "root-1.token").write_text(token)
        penstock("registry", "assign", "root-1", "--role", "ROOT", *operator, folder=folder)
        penstock("registry", "topics", "POS", "--down", "prices", *operator, folder=folder)

        brokers = {"PENSTOCK_REGISTRY__URL": url, "PENSTOCK_ADMIN__ENABLED": "false"}
        serve = ["serve", "--port", "0", "--config"]
        root = stack.enter_context(
            process(*serve, str(HERE / "root.toml"), "--data-dir", "root", folder=folder, **brokers)
        )
        brokers["PENSTOCK_REGISTRY__JOIN_TOKEN_FILE"] = "registry-data/join.token"
        store = stack.enter_context(
            process(
                *serve, str(HERE / "store.toml"), "--data-dir", "store", folder=folder, **brokers
            )
        )
        lines = "".join(f"price-{number}\n" for number in range(PRICES))
        penstock("produce", "prices", "--bootstrap-server", root, folder=folder, send=lines)

        deadline = time.monotonic() + SECONDS_MAX
        while len(found := prices_at(store, folder)) < PRICES:
            assert time.monotonic() < deadline, f"the shop has {found}"
            time.sleep(0.2)
        assert found == lines.split(), found
        print(penstock("edge", "tree", *operator, folder=folder), end="")
        print(f"the shop has {len(found)} prices, offsets 0 to {len(found) - 1}")


if __name__ == "__main__":
    main()
