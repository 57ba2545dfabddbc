"""`Supervisor`: N brokers as child processes, with one bootstrap address and one metadata store.

It binds the bootstrap address and lets all workers accept from it, so the address answers as long
as one of them does, and clients that connect while none runs wait. It has the metadata store, which
the workers use over a channel. It serves no client and holds no record.

The end of the supervisor is the end of the workers, also after kill -9: their channels end, and
they stop as after SIGTERM. A stop ends the workers first, together, and the store last.
"""

import asyncio
import logging
import os
import secrets
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from penstock.broker.connections.binding import bind_entrance
from penstock.broker.connections.entrance import Entrance
from penstock.cluster.stores.sqlite_store import SqliteMetadataStore
from penstock.core.errors import PenstockError
from penstock.core.settings.tree import Settings
from penstock.node.identity import METADATA_FILE
from penstock.node.workers.supervised_worker import Command, SupervisedWorker
from penstock.node.workers.worker_parts import WorkerState
from penstock.node.workers.worker_settings import admin_base, check_workers
from penstock.node.workers.workers_directory import claim_directory

logger = logging.getLogger(__name__)

BACKLOG: Final = 4_096
SECRET_BYTES: Final = 32


class Supervisor:
    """The workers of one machine."""

    def __init__(self, settings: Settings, count: int, command: Command) -> None:
        """`settings` are those of the whole; `worker_settings` says how each worker differs."""
        self._settings = settings
        self._count = count
        self._command = command
        self._workers: list[SupervisedWorker] = []
        self._stop = asyncio.Event()
        self._failure: PenstockError | OSError | None = None
        """Why a worker cannot be started."""
        self.addresses = ""
        """The bootstrap address of each listener."""

    @property
    def states(self) -> tuple[WorkerState, ...]:
        """All workers."""
        return tuple(worker.state for worker in self._workers)

    def stop(self) -> None:
        """Stop all workers; a second call kills them."""
        if self._stop.is_set():
            for worker in self._workers:
                worker.send_signal(signal.SIGKILL)
            os._exit(130)
        self._stop.set()

    def reload_settings(self) -> None:
        """Let all workers read the settings file again."""
        for worker in self._workers:
            # One that starts has just read it, and does not expect the signal yet.
            if worker.state.condition == "running":
                worker.send_signal(signal.SIGHUP)

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Run the workers until `stop`; `on_ready` is called when all of them have answered."""
        settings = self._settings
        check_workers(settings, self._count)
        async with AsyncExitStack() as stack:
            lock = await asyncio.to_thread(claim_directory, settings.data_dir, self._count)
            stack.callback(lock.release)
            store = await SqliteMetadataStore.open(f"{settings.data_dir}/{METADATA_FILE}")
            stack.push_async_callback(store.close)
            self._create_workers(store, self._bind(stack))
            await self._run_workers(on_ready)

    def _create_workers(self, store: SqliteMetadataStore, shared: dict[str, list[int]]) -> None:
        hello = {
            "shared": shared,
            "secret": secrets.token_hex(SECRET_BYTES),
            "has_admin": self._has_admin_ports(),
        }
        descriptors = [one for found in shared.values() for one in found]
        for number in range(1, self._count + 1):
            state = WorkerState(number, self._settings.node.id + number - 1, "starting")
            self._workers.append(
                SupervisedWorker(
                    state,
                    store,
                    self._command,
                    {**hello, "worker": number},
                    descriptors,
                    self._report,
                )
            )

    async def _run_workers(self, on_ready: Callable[[], None]) -> None:
        """Keep all workers until a stop is asked for, or one of them cannot be started."""
        async with asyncio.TaskGroup() as tasks:
            for worker in self._workers:
                tasks.create_task(self._keep(worker))
            announcing = tasks.create_task(self._announce(on_ready))
            await self._stop.wait()
            announcing.cancel()
            logger.info("stopping all workers")
            for worker in self._workers:
                worker.stop()
        if self._failure is not None:
            raise self._failure

    async def _keep(self, worker: SupervisedWorker) -> None:
        try:
            await worker.keep()
        except (PenstockError, OSError) as error:
            self._failure = self._failure or error
            self._stop.set()

    async def _announce(self, on_ready: Callable[[], None]) -> None:
        for worker in self._workers:
            await worker.has_answered.wait()
        on_ready()

    def _report(self) -> None:
        """Report the states of all workers to each of them."""
        states = self.states
        for worker in self._workers:
            worker.send_states(states)

    def _bind(self, stack: AsyncExitStack) -> dict[str, list[int]]:
        """Bind the bootstrap addresses; return their descriptors by listener."""
        shared: dict[str, list[int]] = {}
        shown = []
        for listener in self._settings.all_listeners:
            entrance = Entrance(
                name=listener.name,
                is_declared=bool(self._settings.listeners),
                host=listener.host,
                port=listener.port,
            )
            shared[listener.name] = []
            for bound in bind_entrance(entrance):
                stack.callback(bound.close)
                bound.listen(BACKLOG)
                shared[listener.name].append(bound.fileno())
            host = listener.advertised_host or listener.host
            address = f"{host}:{listener.advertised_port or entrance.port}"
            named = f"{address} ({listener.name}, {listener.protocol})"
            shown.append(named if self._settings.listeners else address)
        self.addresses = ", ".join(shown)
        return shared

    def _has_admin_ports(self) -> bool:
        """Whether workers have admin ports: not if a default port is in use."""
        admin = self._settings.admin
        if not admin.enabled or admin.port is not None:
            return admin.enabled
        family = socket.AF_INET6 if ":" in admin.host else socket.AF_INET
        for port in range(admin_base(self._settings), admin_base(self._settings) + self._count):
            try:
                socket.create_server((admin.host, port), family=family).close()
            except OSError as error:
                logger.warning(
                    "no admin ports: %s:%d: %s. Metrics, health and the REST API are not served; "
                    "choose another port with --admin-port or admin.port.",
                    admin.host,
                    port,
                    error.strerror,
                )
                return False
        return True
