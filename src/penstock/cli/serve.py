"""`penstock serve`: run a broker until a signal stops it.

Settings are read from a TOML file, then `PENSTOCK_*` variables, then flags. The one line on
standard output reports that the broker answers, its address, and the start time; all other output
goes to standard error. SIGTERM and SIGINT finish accepted requests and exit with 0, within 5 s even
if the broker still waits; a second signal does not wait. The settings file is watched, and SIGHUP
reloads it at once.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

import click

from penstock.cli.options import examples, settings_file_option
from penstock.cli.settings_file import load
from penstock.core.stopping import STOP_EXIT_SECONDS
from penstock.node.settings.file_look import look_at

if TYPE_CHECKING:
    from penstock.core.settings.tree import Settings
    from penstock.node.server import BrokerServer
    from penstock.node.settings.settings_reload import SettingsSource

_LAST_WORDS_SECONDS = 0.1
"""Time for the log line of a late stop."""


@click.command(
    short_help="Run a broker.",
    epilog=examples(
        "penstock serve",
        "penstock serve --port 9093 --data-dir /var/lib/penstock",
        "penstock serve --config penstock.toml",
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
def serve(
    file: str | None,
    host: str | None,
    port: int | None,
    data_dir: str | None,
    flush: str | None,
    admin_port: int | None,
    no_admin: bool,
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
    first_look = look_at(file) if file is not None else None
    loaded = load(file, flags)
    settings = loaded.settings
    logging.basicConfig(
        level=settings.node.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for line in loaded.notes:
        logging.getLogger("penstock").warning("%s", line)
    from penstock.node.security.process_privacy import protect_memory
    from penstock.node.server import run  # only a broker needs the rest of Penstock
    from penstock.node.settings.settings_reload import SettingsSource

    protect_memory(settings)
    source = SettingsSource(file, lambda: load(file, flags), loaded, first_look)
    last_resort = threading.Timer(STOP_EXIT_SECONDS, _exit_late)
    last_resort.daemon = True
    try:
        run(_serve(source, started_at, last_resort), use_uvloop=settings.node.uvloop)
    finally:
        last_resort.cancel()
        gc.enable()
    _leave()


async def _serve(source: "SettingsSource", started_at: float, last_resort: threading.Timer) -> None:
    from penstock.node.server import BrokerServer

    settings = source.first.settings
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    starting = asyncio.current_task()
    assert starting is not None
    is_starting = True

    def on_signal() -> None:
        if stop.is_set():
            os._exit(130)
        stop.set()
        last_resort.start()
        if is_starting:
            # A start may verify logs for minutes; a cancelled start ends after the current log.
            starting.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    server = BrokerServer(source=source)
    if source.path is not None:
        loop.add_signal_handler(signal.SIGHUP, server.reload_settings)
    try:
        async with server:
            is_starting = False
            await _until_stopped(server, settings, started_at, stop)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        starting.uncancel()
        logging.getLogger("penstock").info("stopped before the start was complete")


async def _until_stopped(
    server: "BrokerServer", settings: "Settings", started_at: float, stop: asyncio.Event
) -> None:
    from penstock.node import garbage, warming

    seconds = time.monotonic() - started_at
    click.echo(
        f"Penstock is ready on {server.addresses} after {seconds:.2f} s "
        f"(data in {settings.data_dir}, flush {settings.flush.mode})"
    )
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
