"""A real S3 store on loopback: versitygw over a folder, with users of their own keys.

How-to: `with object_store(folder) as store: store.create_bucket("lake")`, then `store.address`,
`store.access_key` and `store.secret_key`.

Guarantees: the store has answered when the block begins and is stopped when it ends; it dies with
the process that started it. Its conditional writes hold in races, which those of moto, S3Mock and
S3Proxy do not: a race of two writers is meaningful here. `add_user` gives a second pair of keys
which `remove_user` makes invalid at once, like keys that expire.

The program is built from its Go module, at a pinned version, into the user's cache folder.
"""

import contextlib
import functools
import http.client
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow.fs as fs

from tests.oracle.cache import OracleError, built, progress, run
from tests.oracle.running_broker import HOST, free_port

VERSION: Final = "1.8.0"
MODULE: Final = "github.com/versity/versitygw"
REGION: Final = "us-east-1"
_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02


class ObjectStore:
    """A running store."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.port = free_port()
        self.address = f"http://{HOST}:{self.port}"
        self.access_key = "root-access"
        self.secret_key = "root-secret-of-the-store"
        self.data = folder / "data"
        self._program = program
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the store, again with the same data and port, and wait until it answers."""
        for part in ("data", "iam"):
            (self._folder / part).mkdir(parents=True, exist_ok=True)
        guard = shutil.which("setpriv")
        command = [
            *([guard, "--pdeathsig", "KILL", "--"] if guard else []),
            *(str(self._program), "--port", f"{HOST}:{self.port}", "--region", REGION),
            *("--iam-dir", str(self._folder / "iam"), "posix", str(self.data)),
        ]
        keys = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        with (self._folder / "store.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **keys},
            )
        self._wait(self._process)

    def stop(self) -> None:
        """Stop the store; its data stay."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def create_bucket(self, name: str) -> None:
        """Create a bucket."""
        self.files(allow_bucket_creation=True).create_dir(name)

    def files(self, *, allow_bucket_creation: bool = False) -> fs.S3FileSystem:
        """Return the store as Arrow's file system, with the keys of its owner."""
        return fs.S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            endpoint_override=self.address,
            region=REGION,
            allow_bucket_creation=allow_bucket_creation,
        )

    def add_user(self, access_key: str, secret_key: str, *, role: str = "admin") -> None:
        """Add keys that may do everything, or with the role `user` nothing."""
        self._admin("create-user", "-a", access_key, "-s", secret_key, "-r", role)

    def remove_user(self, access_key: str) -> None:
        """Make keys invalid, from now on."""
        self._admin("delete-user", "-a", access_key)

    def _admin(self, *words: str) -> None:
        keys = ("--access", self.access_key, "--secret", self.secret_key)
        run([self._program, "admin", *keys, "--endpoint-url", self.address, *words])

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.perf_counter() + _START_SECONDS
        while not self._answers():
            if process.poll() is not None or time.perf_counter() > deadline:
                text = (self._folder / "store.log").read_text(errors="replace")[-2000:]
                raise OracleError(f"versitygw did not start:\n{text}")
            time.sleep(_POLL_SECONDS)

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=2)
        with contextlib.closing(connection), contextlib.suppress(OSError):
            connection.request("GET", "/")
            return connection.getresponse().status > 0
        return False


@contextlib.contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """An empty store for as long as the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    store = ObjectStore(_program(), folder)
    try:
        store.start()
        yield store
    finally:
        store.stop()


@functools.cache
def _program() -> Path:
    return built(f"versitygw-{VERSION}", _build) / "versitygw"


def _build(folder: Path) -> None:
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        raise OracleError("'go' is not installed: it builds versitygw; see https://go.dev/dl")
    progress(f"building versitygw {VERSION} (2 minutes)")
    sources = folder / "sources"
    sources.mkdir()
    program = f"{MODULE}/cmd/versitygw"
    run([go, "mod", "init", "x"], folder=sources)
    run([go, "get", "-tool", f"{program}@v{VERSION}"], folder=sources)
    run([go, "build", "-o", folder / "versitygw", program], folder=sources)
    shutil.rmtree(sources)
