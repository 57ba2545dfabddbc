"""A real etcd of one or three members on loopback: start, kill, pause, restart, find the leader.

Guarantees: `EtcdCluster` listens on free ports of 127.0.0.1; all members have answered when the
block begins, and are stopped when it ends. Members die with the process that started them. Only own
children are signalled, by process id.

Two programs: Debian's (`etcd-server`, `etcd-client`), and 3.6.16, built from its Go module into the
user's cache folder. `PENSTOCK_ETCD_VERSION` chooses one for tests that run on one only.

It does NOT sync files to the disk: tests kill processes, never the machine.
"""

import contextlib
import dataclasses
import functools
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.oracle.cache import OracleError, built, progress, run, tool
from tests.oracle.running_broker import HOST, free_port

DEBIAN: Final = "debian"
CURRENT: Final = "3.6.16"
VERSIONS: Final = (DEBIAN, CURRENT)

_START_SECONDS: Final = 30.0
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.02
_FAST: Final = ("--heartbeat-interval", "50", "--election-timeout", "500")


def version_for_tests() -> str:
    """`PENSTOCK_ETCD_VERSION`, or the current one."""
    return os.environ.get("PENSTOCK_ETCD_VERSION", CURRENT)


@dataclasses.dataclass(frozen=True)
class Tls:
    """PEM files of all members. Clients need a certificate of the same authority."""

    ca: Path
    certificate: Path
    key: Path
    client_certificate: Path
    client_key: Path


@functools.cache
def _programs(version: str) -> tuple[str, str]:
    """The paths of etcd and etcdctl."""
    if version == DEBIAN:
        advice = "install Debian's packages etcd-server and etcd-client"
        return tool("etcd", advice), tool("etcdctl", advice)
    folder = built(f"etcd-{version}", functools.partial(_build, version))
    return str(folder / "etcd"), str(folder / "etcdctl")


def _build(version: str, folder: Path) -> None:
    go = shutil.which("go", path=f"{os.environ.get('PATH', '')}:/usr/local/go/bin")
    if go is None:
        raise OracleError("'go' is not installed: it builds etcd; see https://go.dev/dl")
    progress(f"building etcd {version} (3 minutes)")
    sources = folder / "sources"
    sources.mkdir()
    server, client = "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/etcdctl/v3"
    run([go, "mod", "init", "x"], folder=sources)
    run([go, "get", "-tool", f"{server}@v{version}", f"{client}@v{version}"], folder=sources)
    run([go, "build", "-o", folder / "etcd", server], folder=sources)
    run([go, "build", "-o", folder / "etcdctl", client], folder=sources)
    shutil.rmtree(sources)


@dataclasses.dataclass(frozen=True)
class _Status:
    is_leader: bool
    revision: int


class EtcdMember:
    """One member: a child process that can be started again with its data."""

    def __init__(self, name: str, folder: Path, program: str, *, scheme: str) -> None:
        self.name = name
        self.folder = folder
        self.client_port = free_port()
        self.peer_port = free_port()
        self.client_url = f"{scheme}://{HOST}:{self.client_port}"
        self.peer_url = f"http://{HOST}:{self.peer_port}"
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, arguments: Sequence[str], *, is_new: bool) -> None:
        """Start the process; it answers later."""
        guard = shutil.which("setpriv")
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [
            *([guard, "--pdeathsig", "KILL", "--"] if guard else []),
            self._program,
            *("--name", self.name, "--data-dir", str(self.folder / "data")),
            *("--listen-client-urls", self.client_url, "--advertise-client-urls", self.client_url),
            *("--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url),
            *("--initial-cluster-state", "new" if is_new else "existing"),
            *("--logger", "zap", "--log-level", "warn", "--unsafe-no-fsync", *_FAST, *arguments),
        ]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def is_running(self) -> bool:
        """Whether the process lives, paused or not."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """SIGTERM, then kill -9."""
        if self._process is None:
            return
        self.go_on()
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing answers."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        if self.is_running() and self._process is not None:
            self._process.send_signal(signal.SIGCONT)


class EtcdCluster:
    """Members of one etcd; a context manager that starts and stops them."""

    def __init__(
        self,
        folder: Path,
        *,
        members: int = 3,
        version: str = "",
        tls: Tls | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        program, self._control = _programs(version or version_for_tests())
        self._tls = tls
        self._extra = tuple(arguments)
        scheme = "https" if tls else "http"
        self.members = tuple(
            EtcdMember(f"n{number}", folder / f"n{number}", program, scheme=scheme)
            for number in range(members)
        )

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The client addresses of all members."""
        return tuple(member.client_url for member in self.members)

    def __enter__(self) -> Self:
        try:
            for member in self.members:
                member.start(self._arguments(), is_new=True)
            self.wait()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def restart(self, member: EtcdMember) -> None:
        """Start a member that was killed, with its data; `wait` waits until it answers.

        Call it in the main thread: a member dies with the thread that started it.
        """
        member.start(self._arguments(), is_new=False)

    def wait(self) -> None:
        """Wait until every running member has a leader and answers."""
        deadline = time.perf_counter() + _START_SECONDS
        for member in self.members:
            while not self._is_healthy(member):
                if not member.is_running() or time.perf_counter() > deadline:
                    text = (member.folder / "log").read_text(errors="replace")[-2000:]
                    raise OracleError(f"etcd {member.name} did not start:\n{text}")
                time.sleep(_POLL_SECONDS)

    def leader(self) -> EtcdMember:
        """The member that leads, without TLS and authentication."""
        deadline = time.perf_counter() + _START_SECONDS
        while time.perf_counter() < deadline:
            for member in self.members:
                with contextlib.suppress(
                    OSError, LookupError, ValueError, http.client.HTTPException
                ):
                    if self._status(member).is_leader:
                        return member
            time.sleep(_POLL_SECONDS)
        raise OracleError("etcd has no leader")

    def followers(self) -> list[EtcdMember]:
        """The members that do not lead."""
        leader = self.leader()
        return [member for member in self.members if member is not leader]

    def compact(self) -> int:
        """Compact the history at the newest revision, and return it."""
        revision = self._status(self.members[0]).revision
        self.control("compact", str(revision))
        return revision

    def control(self, *words: str, user: str = "") -> str:
        """Run etcdctl; `user` is `name:password`."""
        command = [self._control, "--endpoints", ",".join(self.endpoints), *words]
        if self._tls:
            command += ["--cacert", str(self._tls.ca), "--cert", str(self._tls.client_certificate)]
            command += ["--key", str(self._tls.client_key)]
        if user:
            command += ["--user", user]
        return run(command, environment={"ETCDCTL_API": "3"}, timeout_seconds=30)

    def _arguments(self) -> list[str]:
        peers = ",".join(f"{member.name}={member.peer_url}" for member in self.members)
        arguments = ["--initial-cluster", peers, "--initial-cluster-token", "penstock-test"]
        if self._tls:
            arguments += ["--cert-file", str(self._tls.certificate), "--client-cert-auth"]
            arguments += ["--key-file", str(self._tls.key), "--trusted-ca-file", str(self._tls.ca)]
        return [*arguments, *self._extra]

    def _is_healthy(self, member: EtcdMember) -> bool:
        if self._tls:
            # A client certificate is needed for the health page: the log-in tests would hide it.
            with contextlib.suppress(OracleError):
                self.control("endpoint", "health")
                return True
            return False
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            connection = http.client.HTTPConnection(HOST, member.client_port, timeout=2)
            with contextlib.closing(connection):
                connection.request("GET", "/health")
                return bool(json.loads(connection.getresponse().read())["health"] == "true")
        return False

    def _status(self, member: EtcdMember) -> "_Status":
        connection = http.client.HTTPConnection(HOST, member.client_port, timeout=1)
        with contextlib.closing(connection):
            connection.request("POST", "/v3/maintenance/status", body="{}")
            answer = json.loads(connection.getresponse().read())
        header = answer["header"]
        return _Status(answer.get("leader") == header["member_id"], int(header["revision"]))

    def _stop(self) -> None:
        for member in self.members:
            member.stop()
