"""`Broker`: a real broker in this process, on a free port, with faults on demand.

    with Broker() as broker:
        broker.create_topic("orders")
        run_my_code(broker.bootstrap_server)
        broker.crash()
        broker.restart()
        assert [record.value for record in broker.records("orders")] == ["paid"]

It runs on its own event loop in its own thread, so that blocking clients and any loop of the caller
work beside it. Data is in memory and gone at the end, unless a directory is given. It
uses a real socket: code that works here works with `penstock serve`. Code that has a loop already
can use `penstock.BrokerServer` in it directly.

docs/behaviour.md defines the faults exactly. They may be called from any thread, one at a time;
`stop` never hangs on an active fault. For asyncio there is `AsyncBroker`.
"""

import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from types import TracebackType
from typing import TYPE_CHECKING, Self

from penstock.cluster.stores.memory_database import MemoryDatabase
from penstock.core.metrics import Collected
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import Settings
from penstock.node.foundation import MEMORY_PATH
from penstock.node.server import BrokerServer
from penstock.node.stand_ins import StandIns
from penstock.storage.disk.filesystem import DiskFileSystem, FileSystem
from penstock.testing.broker_run import BrokerRun
from penstock.testing.fixture_settings import start_groups_at_once, with_ports
from penstock.testing.limits import ARRIVAL_SECONDS_MAX
from penstock.testing.network import Line, Network
from penstock.testing.switched_disk import SwitchedDisk
from penstock.testing.volatile_disk import VolatileDisk

if TYPE_CHECKING:
    from penstock.testing.topic_records import Text, TopicRecord


class Broker:
    """A broker in a thread; start and stop it as a context manager."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        data_dir: str | PurePath | None = None,
        filesystem: FileSystem | None = None,
    ) -> None:
        """Use `settings` if given; else memory or `data_dir`, on a free port.

        There is an admin port only when the settings name one (`admin.port`), and a group's first
        rebalance waits only when they set `groups.initial_rebalance_delay_ms`. A `filesystem`, such
        as a `FaultyDisk`, replaces the disk of the logs.
        """
        if settings is None:
            settings = (
                BrokerConfig(port=0, storage="memory")
                if data_dir is None
                else BrokerConfig(port=0, data_dir=data_dir)
            )
        if settings.admin.port is None:
            no_admin = settings.admin.model_copy(update={"enabled": False})
            settings = settings.model_copy(update={"admin": no_admin})
        self._settings = start_groups_at_once(settings)
        self._disk = SwitchedDisk(filesystem or _disk_of(settings))
        self._network = Network()
        self._line: Line | None = None
        self._database: MemoryDatabase | None = None
        self._run: BrokerRun | None = None
        self._server: BrokerServer | None = None
        self._is_ended = False
        self._host, self._port = "", 0
        self._kept_ports: list[socket.socket] = []
        """They reserve the ports while the broker is down."""
        self._turn = threading.RLock()

    # --- Addresses and metrics ---

    @property
    def bootstrap_server(self) -> str:
        """Return the value for a client's `bootstrap.servers`; the same after crash and restart."""
        return f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        """Return the address that clients connect to."""
        self._check_started()
        return self._host

    @property
    def port(self) -> int:
        """Return the port that clients connect to."""
        self._check_started()
        return self._port

    @property
    def listening_ports(self) -> Mapping[str, int]:
        """Return the port of each listener by its name, whatever is advertised."""
        return self._last_server().listening_ports

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither crashed nor stopped since. It may be paused."""
        return self._run is not None

    @property
    def admin_port(self) -> int | None:
        """Return the port of metrics, health and the REST API; None when there is none."""
        return self._last_server().admin_port

    @property
    def http_port(self) -> int | None:
        """Return the port of the HTTP gateway; None when there is none."""
        return self._last_server().http_port

    def metrics(self) -> Mapping[str, float]:
        """Return every metric now, by name; the last values of a broker that is down."""
        return self._last_server().metrics()

    def collect_metrics(self) -> list[Collected]:
        """Return every metric now, with its description for an exporter."""
        return self._last_server().collect_metrics()

    # --- Life ---

    def start(self) -> None:
        """Start, and return when the broker answers; raise its error."""
        with self._turn:
            if self._run is not None or self._is_ended or self._port:
                raise RuntimeError("a Broker is started once; restart() starts it again")
            self._database = MemoryDatabase()
            try:
                self._start()
            except BaseException:
                self._give_back()
                raise

    def stop(self) -> None:
        """Finish accepted requests and stop; raise an error of the broker."""
        with self._turn:
            run, self._run = self._run, None
            try:
                if run is not None:
                    self._stop(run)
            finally:
                self._give_back()

    def restart(self) -> None:
        """Start again on the same port with the data kept, after a crash or a stop.

        A running broker is stopped first, as by SIGTERM: accepted requests are answered.
        """
        with self._turn:
            self._check_started()
            if self._is_ended:
                raise RuntimeError("the broker was stopped and its data given back; make a new one")
            run, self._run = self._run, None
            if run is not None:
                self._stop(run)
                self._keep_ports()
            self._start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    # --- Faults ---

    def pause(self) -> None:
        """Answer nothing until `resume`: connections stay open and are accepted, as by SIGSTOP."""
        with self._turn:
            self._alive().hold()

    def resume(self) -> None:
        """Continue with the requests that arrived meanwhile."""
        with self._turn:
            self._alive().release()

    def crash(self) -> None:
        """End as by kill -9: connections are reset, nothing more is written or answered.

        Unsynced data is lost if the data is in memory (that is a power cut), and stays in the files
        if it is in a directory. Clients are refused until `restart`.
        """
        with self._turn:
            run = self._alive()
            run.do(self._cut)
            self._run = None
            run.end()
            self._keep_ports()

    def drop_connections(self) -> None:
        """Reset every connection; new ones are accepted."""
        with self._turn:
            self._alive().do(self._network.reset_all)

    def throttle(self, *, bytes_per_second: int | None = None, latency_ms: float = 0.0) -> None:
        """Limit each connection and direction to a rate, and delay each answer."""
        self._set_line(Line(bytes_per_second, latency_ms))

    def unthrottle(self) -> None:
        """End `throttle`; delayed bytes are sent now."""
        self._set_line(None)

    def disk_full(self) -> None:
        """Let every write fail because the disk is full; reads work. A restart does not end it."""
        self._disk.is_full = True

    def disk_free(self) -> None:
        """End `disk_full`."""
        self._disk.is_full = False

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """`pause` for a block. After a `crash` inside the block the broker stays down."""
        self.pause()
        try:
            yield
        finally:
            if self._run is not None:
                self.resume()

    @contextlib.contextmanager
    def crashed(self) -> Iterator[None]:
        """`crash` for a block, with a `restart` at its end."""
        self.crash()
        try:
            yield
        finally:
            self.restart()

    @contextlib.contextmanager
    def throttled(
        self, *, bytes_per_second: int | None = None, latency_ms: float = 0.0
    ) -> Iterator[None]:
        """`throttle` for a block."""
        self.throttle(bytes_per_second=bytes_per_second, latency_ms=latency_ms)
        try:
            yield
        finally:
            self.unthrottle()

    @contextlib.contextmanager
    def full_disk(self) -> Iterator[None]:
        """`disk_full` for a block."""
        self.disk_full()
        try:
            yield
        finally:
            self.disk_free()

    # --- Topics: by our client, imported by the first call, because most tests have their own ---

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic; raise if one of this name exists."""
        from penstock.testing.topic_records import create_topic

        create_topic(self.bootstrap_server, topic, partitions, configs or {})

    def produce(
        self,
        topic: str,
        *values: "Text | None",
        key: "Text | None" = None,
        headers: "Mapping[str, Text] | None" = None,
        partition: int | None = None,
    ) -> None:
        """Append records, and return when all are acknowledged; text becomes UTF-8."""
        from penstock.testing.topic_records import produce

        produce(self.bootstrap_server, topic, values, key, headers or {}, partition)

    def records(
        self,
        topic: str,
        *,
        count: int | None = None,
        timeout_seconds: float = ARRIVAL_SECONDS_MAX,
        partitions: Sequence[int] = (),
        committed: bool = True,
    ) -> "list[TopicRecord]":
        """Return a topic's records by partition and offset; with `count`, wait for that number.

        If fewer records arrive in time, raise an `AssertionError` that shows the records that
        arrived. Records of open and aborted transactions are left out unless `committed` is false.
        """
        from penstock.testing.topic_records import arrived_records

        return arrived_records(
            self.bootstrap_server,
            topic,
            count=count,
            timeout_seconds=timeout_seconds,
            partitions=partitions,
            committed=committed,
        )

    # --- Inside ---

    def _check_started(self) -> None:
        if not self._port:
            raise RuntimeError("the broker is not started: use `with Broker() as broker`")

    def _last_server(self) -> BrokerServer:
        self._check_started()
        assert self._server is not None
        return self._server

    def _alive(self) -> BrokerRun:
        self._check_started()
        if self._run is None:
            remedy = "make a new one" if self._is_ended else "restart() starts it again"
            raise RuntimeError(f"the broker is not running; {remedy}")
        return self._run

    def _start(self) -> None:
        assert self._database is not None
        self._network = Network(self._line)
        stand_ins = StandIns(self._disk, self._database.path, self._network.wrap)
        server = BrokerServer(self._settings, stand_ins=stand_ins)
        run = BrokerRun(server, use_uvloop=self._settings.node.uvloop)
        run.start()
        self._run, self._server = run, server
        self._host, self._port = server.host, server.port
        self._settings = with_ports(self._settings, server.listening_ports)
        self._let_ports_go()

    def _stop(self, run: BrokerRun) -> None:
        """Stop a run; send the bytes on a slow line now, or the stop would wait for them."""
        network = self._network
        if network.line is not None:
            # The stop itself reports a broker that has died or hangs.
            with contextlib.suppress(RuntimeError, TimeoutError):
                run.do(lambda: network.set_line(None))
        run.stop()

    def _cut(self) -> None:
        """Cut the broker off from its clients and its disk; runs on the broker's thread."""
        before = self._disk
        if isinstance(before.filesystem, VolatileDisk):
            self._disk = SwitchedDisk(before.filesystem.after_power_cut())
        else:
            before.is_cut_off = True
            self._disk = SwitchedDisk(before.filesystem)
        self._disk.is_full, before.is_full = before.is_full, False
        self._network.cut()

    def _set_line(self, line: Line | None) -> None:
        with self._turn:
            self._line = line
            if self._run is not None:
                network = self._network
                self._run.do(lambda: network.set_line(line))

    def _keep_ports(self) -> None:
        """Stay bound without listening: clients are refused, and no other process gets a port."""
        for listener in self._settings.all_listeners:
            host = "127.0.0.1" if listener.host == "localhost" else listener.host
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            kept = socket.socket(family, socket.SOCK_STREAM)
            try:
                kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                kept.bind((host, listener.port))
            except OSError:
                # Another process has the port, or the name is no address: the restart will fail.
                kept.close()
                continue
            self._kept_ports.append(kept)

    def _let_ports_go(self) -> None:
        for kept in self._kept_ports:
            kept.close()
        self._kept_ports = []

    def _give_back(self) -> None:
        self._is_ended = True
        self._let_ports_go()
        if self._database is not None:
            self._database.close()


def _disk_of(settings: Settings) -> FileSystem:
    if settings.node.storage != "memory":
        return DiskFileSystem()
    disk = VolatileDisk()
    # The directory itself is older than the broker, like a mounted disk: no power cut removes it.
    disk.make_directory(MEMORY_PATH)
    disk.sync_directory("/")
    return disk
