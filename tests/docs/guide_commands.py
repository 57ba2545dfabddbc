"""The blocks of a guide, and a folder in which a reader types them.

Guarantees: commands run in a shell in the folder, with the variables that earlier blocks exported;
the broker of `penstock serve` is a child process, ready when `serve` returns, and ended at the end
of the `with` block. Ports of the guide are replaced by free ones in everything that is typed.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.oracle.running_broker import free_port

READY = "Penstock is ready on"
WAIT_SECONDS_MAX = 60.0
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_EXPORT = re.compile(r"^export (\w+)=(.*)$", re.MULTILINE)


class Block(NamedTuple):
    """One block of code."""

    language: str
    text: str


def section(text: str, heading: str) -> str:
    """The text below a heading of the second level."""
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, heading
    return rest.partition("\n## ")[0]


def blocks(text: str, language: str | None = None) -> list[Block]:
    """The blocks of code, in their order; of one language only if it is given."""
    found = [Block(*one) for one in _BLOCK.findall(text)]
    return [one for one in found if language in (None, one.language)]


class Reader:
    """Types the blocks of a guide in a folder."""

    def __init__(self, folder: Path, ports: tuple[int, ...], variables: Mapping[str, str]) -> None:
        self.folder = folder
        self.ports = {port: free_port() for port in ports}
        python = Path(os.environ.get("PENSTOCK_BROKER_PYTHON", sys.executable))
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        self.variables = variables
        own = {one: value for one, value in os.environ.items() if not one.startswith("PENSTOCK_")}
        self._environment = {**own, **variables, "PATH": path}
        self._broker: subprocess.Popen[bytes] | None = None
        self._log_begin = 0

    @property
    def log_path(self) -> Path:
        """The output of all brokers."""
        return self.folder / "broker.log"

    def replaced(self, text: str) -> str:
        """The text with free ports."""
        for port, free in self.ports.items():
            text = re.sub(rf"\b{port}\b", str(free), text)
        return text

    def shown(self, text: str) -> str:
        """An output with the ports of the guide."""
        for port, free in self.ports.items():
            text = text.replace(str(free), str(port))
        return text

    def write(self, name: str, text: str) -> None:
        """Write a file as an editor does."""
        path = self.folder / name
        path.write_text(self.replaced(text))
        path.chmod(0o600)

    def run(
        self, command: str, *, is_good: bool = True, **variables: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run one command or a whole block."""
        done = subprocess.run(
            ["bash", "-e", "-c", self.replaced(command)],
            cwd=self.folder,
            env={**self._environment, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS_MAX,
            check=False,
        )
        assert not is_good or done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        self._environment |= dict(_EXPORT.findall(command))
        return done

    def serve(self, command: str) -> None:
        """Start the broker, and wait until it is ready."""
        assert self._broker is None
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        self._log_begin = len(self.log())
        with self.log_path.open("ab") as log:
            self._broker = subprocess.Popen(
                [*guard, *command.split()],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self.wait_for(READY)

    def log(self) -> str:
        """What the brokers printed."""
        return self.log_path.read_text() if self.log_path.exists() else ""

    def wait_for(self, text: str) -> None:
        """Wait until the running broker has printed this."""
        assert self._broker is not None
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while text not in self.log()[self._log_begin :]:
            assert self._broker.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def stop(self) -> None:
        """End the broker as an operator does."""
        broker, self._broker = self._broker, None
        if broker is not None:
            broker.terminate()
            assert broker.wait(WAIT_SECONDS_MAX) == 0, self.log()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._broker is not None:
            self._broker.kill()
            self._broker.wait()
            self._broker = None
        self.stop()
