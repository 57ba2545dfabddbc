"""Both ends of a client process: words go in, one line of JSON comes back for each.

A client has its work on threads; its main thread waits for words and answers them (`serve`). The
leader's end is `Worker`. Other output of a client goes to its own log file, whose end is shown when
it dies.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ANSWER_SECONDS_MAX = 180.0
LOG_CHARACTERS_SHOWN = 4_000


def serve(answers: Mapping[str, Callable[[], object]]) -> None:
    """Answer words from the input until it ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answers[line.strip()]()) + "\n")
        sys.stdout.flush()


class Worker:
    """A client in a process of its own."""

    def __init__(self, module: str, folder: Path, *arguments: str) -> None:
        self.name = " ".join([module.rpartition(".")[2], *arguments[1:]])
        self._log_path = folder / f"{self.name.replace(' ', '-')}.log"
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"},
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def ask(self, word: str, seconds_max: float = ANSWER_SECONDS_MAX) -> dict[str, Any]:
        """Say a word and wait for the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=seconds_max)
        except queue.Empty:
            raise TimeoutError(f"{self.name} did not answer {word!r}:\n{self._log()}") from None
        if not line:
            raise RuntimeError(f"{self.name} died of {word!r}:\n{self._log()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def require_alive(self) -> None:
        """Raise when the client ended by itself."""
        code = self._process.poll()
        if code is not None:
            raise RuntimeError(f"{self.name} ended with {code}:\n{self._log()}")

    def close(self) -> None:
        """End it; harmless when it has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _log(self) -> str:
        return self._log_path.read_text(errors="replace")[-LOG_CHARACTERS_SHOWN:]
