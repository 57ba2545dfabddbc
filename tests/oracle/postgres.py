"""A real PostgreSQL on loopback, with logical decoding, of the installed Debian package.

How-to: `with postgres() as database: database.execute("create table ...")`.

Guarantees: the server has answered when the block begins; it dies with the process that started it,
and its data is deleted at the end. It listens on 127.0.0.1 only, without passwords. PostgreSQL does
not run as root: a root process runs it as the user `postgres`, in a folder of that user below the
folder for temporary files, because the folders of tests are closed to other users.

It is NOT durable (`fsync=off`): the server itself is never killed here.
"""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.oracle.cache import OracleError, run, tool
from tests.oracle.running_broker import HOST, free_port

USER: Final = "postgres"
ADVICE: Final = "install PostgreSQL, server and client (Debian: postgresql)"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.05


class Postgres:
    """A running server with its database `postgres`."""

    def __init__(self, port: int) -> None:
        self.port = port
        psql = tool("psql", ADVICE)
        words = ("-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", HOST, "-p", str(port))
        self._psql = (psql, *words, "-U", USER, "-d", USER)

    def execute(self, *statements: str) -> str:
        """Run the statements, each in its own transaction; return what they printed."""
        done = subprocess.run(
            self._psql,
            input=";\n".join(statements) + ";\n",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if done.returncode != 0:
            raise OracleError(f"psql: {done.stderr[-4000:]}")
        return done.stdout

    def rows(self, query: str) -> list[Any]:
        """Return the first column of each row, a JSON value."""
        return [json.loads(line) for line in self.execute(query).splitlines()]

    def answers(self) -> bool:
        """Return whether it accepts a connection, now."""
        try:
            return self.execute("select 1").strip() == "1"
        except OracleError:
            return False


@contextlib.contextmanager
def postgres() -> Iterator[Postgres]:
    """An empty server for as long as the block lasts."""
    home = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    port = free_port()
    try:
        if os.geteuid() == 0:
            shutil.chown(home, USER, USER)
        data, log = home / "data", home / "server.log"
        run([*_as_user(), _program("initdb"), "-A", "trust", "-U", USER, "-N", "-D", data])
        settings = {
            "listen_addresses": HOST,
            "port": str(port),
            "unix_socket_directories": "",
            "wal_level": "logical",
            "fsync": "off",
            "max_wal_senders": "4",
        }
        words = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*_as_user(), _program("postgres"), "-D", str(data), *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=home,
            )
        try:
            server = Postgres(port)
            _wait(process, server, log)
            yield server
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS / 2)
            if process.poll() is None:
                process.send_signal(3)  # SIGQUIT: an immediate shutdown, also of its children
                process.wait(_STOP_SECONDS)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], server: Postgres, log: Path) -> None:
    deadline = time.perf_counter() + _START_SECONDS
    while not server.answers():
        if process.poll() is not None or time.perf_counter() > deadline:
            text = log.read_text(errors="replace")[-4000:]
            raise OracleError(f"PostgreSQL did not start:\n{text}")
        time.sleep(_POLL_SECONDS)


def _as_user() -> Sequence[str]:
    """The words that make a command die with this process, and run as a user that is not root."""
    guard = tool("setpriv", "install util-linux")
    user = ["--reuid", USER, "--regid", USER, "--clear-groups"] if os.geteuid() == 0 else []
    return [guard, *user, "--pdeathsig", "KILL", "--"]


def _program(name: str) -> str:
    """The newest installed version of a program of the server, which is not on the path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(found[-1]) if found else tool(name, ADVICE)
