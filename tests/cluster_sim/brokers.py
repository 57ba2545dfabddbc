"""`SimulatedBroker`: the production broker as a process of the simulation, on a disk that stays.

It is started by `penstock.node.server.BrokerServer`, with stand-ins for disk, clock and metadata
store. A crash drops its callbacks, timers and connections: no `finally` runs. The next start uses
the disk as the crash left it. A clean stop leaves the server's own `async with`.
"""

import asyncio
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

from penstock.broker.connections import server as listener_module
from penstock.broker.connections.entrance import Entrance
from penstock.core.settings.config import BrokerConfig
from penstock.core.settings.tree import Settings
from penstock.node.admin_parts import Served
from penstock.node.server import BrokerServer
from penstock.node.stand_ins import StandIns
from tests.cluster_sim.disk import SimulatedDisk
from tests.cluster_sim.loop import Machine, SimulatedLoop
from tests.cluster_sim.network import SimulatedNetwork, SimulatedSocket
from tests.cluster_sim.store import StoreNetwork, StoreView
from tests.cluster_sim.threads import WALL_CLOCK_BEGIN_MS

PORT: Final = 9092
PEER_PORT: Final = 9093
"""For other brokers."""
GROUP_SETTINGS: Final = {
    "offsets_partitions": 2,
    "consumer_session_timeout_ms": 4_000,
    "consumer_heartbeat_interval_ms": 500,
}
TRANSACTION_SETTINGS: Final = {"state_partitions": 2, "timeout_check_interval_ms": 1_000}


class SkewedClock:
    """The clock of one broker: the virtual time, and a date that may jump."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        """Return the date as this broker knows it."""
        return WALL_CLOCK_BEGIN_MS + int(self._loop.time() * 1000) + self.skew_ms

    def monotonic(self) -> float:
        """Return the virtual time."""
        return self._loop.time()


class SimulatedBroker:
    """One broker: its disk, and its process while it runs."""

    def __init__(
        self,
        broker_id: int,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        stores: StoreNetwork,
        draws: random.Random,
    ) -> None:
        self.id = broker_id
        self.host = f"127.0.0.{broker_id}"
        self._loop = loop
        self._network = network
        self._stores = stores
        self._random = draws
        self.disk = SimulatedDisk(loop, draws)
        self.clock = SkewedClock(loop)
        self.machine: Machine | None = None
        self.server: BrokerServer | None = None
        self.incarnation = 0
        self.error: BaseException | None = None
        """The error that ended the process by itself."""
        self._settings: Settings | None = None
        self.lag_seconds = 10.0
        self._task: asyncio.Task[None] | None = None
        self._is_stopping: asyncio.Event | None = None

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.machine is not None

    @property
    def is_up(self) -> bool:
        """Whether the process has started and serves clients."""
        return self.served is not None

    @property
    def served(self) -> Served | None:
        """The parts of the running broker; None before it has started."""
        if self.server is None or self.server._parts is None:
            return None
        return self.server._parts.admin._served

    def settings(self) -> Settings:
        """Return the settings of this broker."""
        if self._settings is None:
            self._settings = self._make_settings()
        return self._settings

    def _make_settings(self) -> Settings:
        settings: Settings = BrokerConfig(
            host=self.host, port=PORT, node_id=self.id, storage="memory", auto_create_topics=False
        )
        changed = {
            "listen_host": self.host,
            "listen_port": PEER_PORT,
            "replica_lag_seconds_max": self.lag_seconds,
        }
        cluster = settings.cluster.model_copy(update=changed)
        # It would bind a port of this machine.
        no_admin = settings.admin.model_copy(update={"enabled": False})
        groups = settings.groups.model_copy(update=GROUP_SETTINGS)
        transactions = settings.transactions.model_copy(update=TRANSACTION_SETTINGS)
        return settings.model_copy(
            update={
                "cluster": cluster,
                "admin": no_admin,
                "groups": groups,
                "transactions": transactions,
            }
        )

    # --- The process ---

    def start(self) -> None:
        """Start the process; it serves some time later."""
        assert self.machine is None
        self.incarnation += 1
        self.error = None
        machine = self.machine = self._loop.add_machine(f"broker{self.id}/{self.incarnation}")
        machine.owner = self
        self._network.power_on(self.host)
        self._network.place(machine, self.host)
        stand_ins = StandIns(
            filesystem=self.disk,
            wrap_connection=lambda protocol: protocol,
            clock=self.clock,
            metadata_store=StoreView(self._stores, self.id),
        )
        self.server = BrokerServer(self.settings(), stand_ins=stand_ins)
        self._task = self._loop.start(machine, self._run(self.server, machine), self.host)

    async def _run(self, server: BrokerServer, machine: Machine) -> None:
        stopping = self._is_stopping = asyncio.Event()
        try:
            async with server:
                self._loop.note(f"{machine.name} serves")
                await stopping.wait()
            self._loop.note(f"{machine.name} has stopped")
        except Exception as error:  # noqa: BLE001 - the run decides whether it was expected
            self._loop.note(f"{machine.name} ended: {error!r}")
            self.error = error
        self._end(is_clean=True)

    def ask_to_stop(self) -> None:
        """Begin a clean stop."""
        if self._is_stopping is not None:
            self._is_stopping.set()

    def crash(self, *, loses_power: bool) -> None:
        """End the process now; the disk is as the crash left it."""
        assert self.machine is not None
        self._network.process_died(self.machine, has_power=not loses_power)
        old = self.disk
        self.disk = old.after_power_loss() if loses_power else old.after_kill()
        self._end(is_clean=False)

    def _end(self, *, is_clean: bool) -> None:
        machine = self.machine
        assert machine is not None
        if is_clean:
            self._network.process_died(machine, has_power=True)
            self.disk = self.disk.after_kill()
        self._loop.crash(machine)
        self.machine = self.server = None

    def replace_disk(self, disk: SimulatedDisk | None = None) -> None:
        """Use another disk at the next start; None is an empty one."""
        assert self.machine is None
        self.disk = disk or SimulatedDisk(self._loop, self._random)


def bind_simulated(entrance: Entrance) -> list[SimulatedSocket]:
    """Bind an entrance to an address of the simulation; port 0 is a fixed port of its name."""
    if entrance.port == 0:
        entrance.port = 20_000 + sum(map(ord, entrance.name)) % 10_000
    return [SimulatedSocket(entrance.host, entrance.port)]


@contextmanager
def simulated_sockets(loop: SimulatedLoop, network: SimulatedNetwork) -> Iterator[None]:
    """Let listeners and clients use the simulated network."""
    replaced: Mapping[str, Any] = {
        "create_server": network.create_server,
        "create_connection": network.create_connection,
    }
    with (
        patch.object(listener_module, "bind_entrance", bind_simulated),
        patch.multiple(loop, **replaced),
    ):
        yield
