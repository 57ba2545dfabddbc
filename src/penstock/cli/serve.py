"""`penstock serve`: run a broker until a signal stops it.

Settings are read from a TOML file, then `PENSTOCK_*` variables, then flags. The one line on
standard output reports that the broker answers, its address, and the start time; all other output
goes to standard error. SIGTERM and SIGINT finish accepted requests and exit with 0, within 5 s even
if the broker still waits; a second signal does not wait. The settings file is watched, and SIGHUP
reloads it at once.

With `--workers` this process is a supervisor (`node.workers`), which runs the same command for each
worker with `--worker-channel`, the descriptor of the channel between them.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from penstock.cli import exits
from penstock.cli.options import examples, settings_file_option
from penstock.cli.settings_file import load
from penstock.core.errors import PenstockError
from penstock.core.stopping import STOP_EXIT_SECONDS
from penstock.node.settings.file_look import look_at

if TYPE_CHECKING:
    from penstock.core.settings.config import Loaded
    from penstock.core.settings.tree import Settings
    from penstock.node.server import BrokerServer
    from penstock.node.settings.settings_reload import SettingsSource
    from penstock.node.workers.worker_link import WorkerLink

WORKERS_MAX = 64
_LAST_WORDS_SECONDS = 0.1
"""Time for the log line of a late stop."""
_OPTIONS = {
    "listener.host": "--host",
    "listener.port": "--port",
    "node.data_dir": "--data-dir",
    "flush.mode": "--flush",
    "admin.port": "--admin-port",
}
"""Options of this command that a worker gets too."""


@click.command(
    short_help="Run a broker.",
    epilog=examples(
        "penstock serve",
        "penstock serve --port 9093 --data-dir /var/lib/penstock",
        "penstock serve --config penstock.toml",
        "penstock serve --workers 4",
    ),
)
@settings_file_option
@click.option("--host", help="Address to listen on. Default: 127.0.0.1.")
@click.option("--port", type=int, help="Port to listen on; 0 takes a free one. Default: 9092.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False),
    help="Directory of the log and of the metadata. Default: penstock-data.",
)
@click.option(
    "--flush",
    type=click.Choice(["always", "interval", "os"]),
    help="When records reach the disk. Default: always, before they are acknowledged.",
)
@click.option(
    "--admin-port",
    type=int,
    help="Port of metrics, health and the REST API, on 127.0.0.1; 0 takes a free one. "
    "Default: 8080, if it is free.",
)
@click.option("--no-admin", is_flag=True, help="Serve no admin port.")
@click.option(
    "--workers",
    type=click.IntRange(1, WORKERS_MAX),
    metavar="COUNT",
    help="Run this many brokers on this machine, each in a process of its own, with one bootstrap "
    "address.",
)
@click.option("--worker-channel", type=int, hidden=True)
def serve(
    file: str | None,
    host: str | None,
    port: int | None,
    data_dir: str | None,
    flush: str | None,
    admin_port: int | None,
    no_admin: bool,
    workers: int | None,
    worker_channel: int | None,
) -> None:
    """Run a broker until it is stopped by Ctrl-C or SIGTERM.

    It prints one line when it answers. Requests that it accepted before the signal are finished
    first. The settings file is watched: settings that can change while the broker runs are applied
    within two seconds.
    """
    started_at = time.monotonic()
    gc.disable()  # until it is ready: objects of the start stay
    flags = {
        "listener.host": host,
        "listener.port": port,
        "node.data_dir": data_dir,
        "flush.mode": flush,
        "admin.port": admin_port,
        "admin.enabled": False if no_admin else None,
    }
    if workers is not None:
        _supervise(file, flags, workers, started_at)
    elif worker_channel is not None:
        _work(file, flags, worker_channel, started_at)
    else:
        _serve_alone(_source(file, flags, None), started_at, None)
    _leave()


def _supervise(
    file: str | None, flags: Mapping[str, object], count: int, started_at: float
) -> None:
    """Run a supervisor with its workers."""
    loaded = load(file, flags)
    _begin_log(loaded)
    from penstock.node.workers.supervisor import Supervisor

    async def supervise() -> None:
        supervisor = Supervisor(
            loaded.settings, count, lambda channel: _worker_words(file, flags, channel)
        )

        def on_ready() -> None:
            seconds = time.monotonic() - started_at
            click.echo(
                f"Penstock is ready on {supervisor.addresses} after {seconds:.2f} s "
                f"({count} workers, data in {loaded.settings.data_dir}, "
                f"flush {loaded.settings.flush.mode})"
            )
            sys.stdout.flush()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        loop.add_signal_handler(signal.SIGHUP, supervisor.reload_settings)
        await supervisor.run(on_ready)

    gc.enable()
    asyncio.run(supervise())


def _worker_words(file: str | None, flags: Mapping[str, object], channel: int) -> list[str]:
    """Return the command of a worker: this one, with its channel instead of the workers."""
    words = [sys.executable, "-m", "penstock", "serve", "--worker-channel", str(channel)]
    if file is not None:
        words += ["--config", file]
    for key, option in _OPTIONS.items():
        if flags[key] is not None:
            words += [option, str(flags[key])]
    return words if flags["admin.enabled"] is None else [*words, "--no-admin"]


def _work(file: str | None, flags: Mapping[str, object], channel: int, started_at: float) -> None:
    """Run one worker; its supervisor shows the error of a start that fails."""
    from penstock.node.workers.worker_link import WorkerLink

    link = WorkerLink.receive(channel)
    try:
        _serve_alone(_source(file, flags, link), started_at, link)
    except PenstockError as error:
        link.report_failure(error)
        raise click.exceptions.Exit(exits.code_of(error)) from error


def _source(
    file: str | None, flags: Mapping[str, object], link: "WorkerLink | None"
) -> "SettingsSource":
    """Return the source of the settings, those of a worker with a `link`."""
    from penstock.node.settings.settings_reload import SettingsSource

    def read() -> "Loaded":
        loaded = load(file, flags)
        return loaded if link is None else link.adapted(loaded)

    first_look = look_at(file) if file is not None else None
    return SettingsSource(file, read, read(), first_look)


def _begin_log(loaded: "Loaded", name: str = "") -> None:
    logging.basicConfig(
        level=loaded.settings.node.log_level.upper(),
        format=f"%(asctime)s %(levelname)s {name}%(name)s: %(message)s",
        stream=sys.stderr,
    )
    if not name:
        for line in loaded.notes:
            logging.getLogger("penstock").warning("%s", line)


def _serve_alone(source: "SettingsSource", started_at: float, link: "WorkerLink | None") -> None:
    """Run one broker in this process: alone, or a worker with a `link` to its supervisor."""
    settings = source.first.settings
    _begin_log(source.first, "" if link is None else f"worker {link.number}: ")
    from penstock.node.security.process_privacy import protect_memory
    from penstock.node.server import run  # only a broker needs the rest of Penstock

    protect_memory(settings)
    last_resort = threading.Timer(STOP_EXIT_SECONDS, _exit_late)
    last_resort.daemon = True
    try:
        run(_serve(source, started_at, last_resort, link), use_uvloop=settings.node.uvloop)
    finally:
        last_resort.cancel()
        gc.enable()


class _Stop:
    """The stop of a broker: asked for by a signal, or by the end of its supervisor."""

    def __init__(self, last_resort: threading.Timer, *, is_worker: bool) -> None:
        starting = asyncio.current_task()
        assert starting is not None
        self._starting = starting
        self._last_resort = last_resort
        self._is_worker = is_worker
        self.is_starting = True
        self.asked = asyncio.Event()

    def ask(self) -> None:
        """Stop; a second signal does not wait."""
        if self.asked.is_set() and self._is_worker:
            return  # of the service manager and of the supervisor: one stop
        if self.asked.is_set():
            os._exit(130)
        self.asked.set()
        self._last_resort.start()
        if self.is_starting:
            # A start may verify logs for minutes; a cancelled start ends after the current log.
            self._starting.cancel()

    def without_supervisor(self) -> None:
        """Stop, because the metadata store is gone with the supervisor."""
        if not self.asked.is_set():
            logging.getLogger("penstock").error("the supervisor is gone: stopping")
            self.ask()

    def was_cancelled(self) -> None:
        """Accept the cancellation of a start that was stopped."""
        self._starting.uncancel()
        logging.getLogger("penstock").info("stopped before the start was complete")


async def _serve(
    source: "SettingsSource",
    started_at: float,
    last_resort: threading.Timer,
    link: "WorkerLink | None",
) -> None:
    from penstock.node.server import BrokerServer
    from penstock.node.stand_ins import StandIns

    settings = source.first.settings
    stop = _Stop(last_resort, is_worker=link is not None)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.ask)
    stand_ins = None
    if link is not None:
        parts = await link.open(stop.without_supervisor)
        stand_ins = StandIns(metadata_store=parts.store, worker=parts)
    server = BrokerServer(source=source, stand_ins=stand_ins)
    if source.path is not None or link is not None:
        loop.add_signal_handler(signal.SIGHUP, server.reload_settings)
    try:
        async with server:
            stop.is_starting = False
            _announce(server, settings, started_at, link)
            await _until_stopped(server, stop.asked)
    except asyncio.CancelledError:
        if not stop.asked.is_set():
            raise
        stop.was_cancelled()


def _announce(
    server: "BrokerServer", settings: "Settings", started_at: float, link: "WorkerLink | None"
) -> None:
    """Report that the broker answers; a worker reports it to its supervisor."""
    if link is not None:
        scheme = "http" if settings.admin.certificate is None else "https"
        port = server.admin_port
        admin = None if port is None else f"{scheme}://{settings.admin.host}:{port}"
        link.report_ready(server.bootstrap_server, admin)
        return
    seconds = time.monotonic() - started_at
    click.echo(
        f"Penstock is ready on {server.addresses} after {seconds:.2f} s "
        f"(data in {settings.data_dir}, flush {settings.flush.mode})"
    )


async def _until_stopped(server: "BrokerServer", stop: asyncio.Event) -> None:
    from penstock.node import garbage, warming

    await server.wait_for_admin()  # so that its imports are not collected either
    garbage.calm()
    warming.load_soon()
    async with asyncio.TaskGroup() as duties:
        collecting = duties.create_task(garbage.collect_when_idle())
        await stop.wait()
        collecting.cancel()
    logging.getLogger("penstock").info("stopping: finishing what was accepted")


def _exit_late() -> None:
    """End the process from another thread: the stop still waits for a disk, a lock or a client.

    Every file is crash safe at every step, so the result is that of a process crash. Logging has
    only a moment, because the stop may wait for logging itself, on a pipe without a reader.
    """
    message = (
        "the stop did not end within %.1f s: exiting now. No acknowledged record is lost; the next "
        "start verifies the logs as after a crash, unless the clean-shutdown marker was written."
    )
    log = threading.Thread(
        target=logging.getLogger("penstock").error, args=(message, STOP_EXIT_SECONDS), daemon=True
    )
    log.start()
    log.join(_LAST_WORDS_SECONDS)
    os._exit(0)


def _leave() -> None:
    """End the process at once; everything is closed.

    Python would wait for a storage thread that still waits for a disk, and free objects that the
    kernel frees with the process.
    """
    logging.shutdown()
    sys.stdout.flush()
    os._exit(0)
