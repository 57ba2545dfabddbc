"""`soak`: leads a broker and its clients through the phases, and reports the findings.

1. Unloaded: only the measured clients.
2. Loaded: all clients; the settings file is rewritten each minute; twice the disk is filled to
   below its mark for a while by another file, and freed again.
3. The end: each client finishes its work and compares; the broker's counts are read; it stops.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.crash.loop_disk import LoopDisk
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker
from tests.soak.scene import DISK_BYTES, MEBIBYTE, RELOAD_SECONDS, TOPICS, settings_text
from tests.soak.verdict import Findings
from tests.soak.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
TICK_SECONDS = 1.0
FREE_SHARE_WHEN_FULL = 0.05
"""Half of the mark, which is a tenth of a small disk."""
WARM_UP_SHARE = 0.25
FULL_AT = (0.35, 0.7)
"""When the disk fills up, as shares of the loaded time."""
FULL_SECONDS_MAX = 20.0
FULL_SHARE = 0.08
STORAGE_ERRORS = 'produce_refused_batches_total{error="KAFKA_STORAGE_ERROR"}'


FORGETFUL = "forgetful-readers"
"""Not a guard of the broker: consumers leave records out of what they report."""


class Soak:
    """One broker and its clients."""

    def __init__(self, folder: Path, disk: Path, without: str = "") -> None:
        """`without` is a guard of `unguarded` to take out of the broker, or `FORGETFUL`."""
        self._is_forgetful = without == FORGETFUL
        self._folder = folder
        self._disk = disk
        self._door = folder / "door"
        self._settings = folder / "penstock.toml"
        self.found = Findings()
        self._write_settings(0)
        self.broker = self._new_broker("" if self._is_forgetful else without)

    def _new_broker(self, without: str) -> RunningBroker:
        made = penstock_broker(
            self._folder,
            arguments=("--config", str(self._settings)),
            data_dir=self._disk / "data",
            from_source=bool(without),
        )
        python, _module, _name, *rest = made.recipe.command
        command = [python, str(Path(__file__).with_name("host.py")), str(self._door), *rest]
        environment = made.recipe.environment
        if without:
            command[1:2] = ["-m", "tests.soak.unguarded", without]
            environment = {**environment, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        recipe = dataclasses.replace(made.recipe, command=command, environment=environment)
        return RunningBroker(recipe, folder=made.folder, port=made.port)

    def metrics(self) -> dict[str, float]:
        """Every metric of the broker now."""
        with socket.socket(socket.AF_UNIX) as door:
            door.settimeout(30)
            door.connect(str(self._door))
            with door.makefile("rb") as answer:
                found: dict[str, float] = json.load(answer)
        return found

    def create_topics(self) -> None:
        """Every topic of the scene."""
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        new = [
            NewTopic(name, partitions, 1, config=settings)
            for name, (partitions, settings) in TOPICS.items()
        ]
        for done in admin.create_topics(new).values():
            done.result(30)

    def _write_settings(self, version: int) -> None:
        """As editors do: a new file that takes the name of the old one."""
        aside = self._settings.with_suffix(".new")
        aside.write_text(settings_text(version))
        aside.replace(self._settings)

    # --- Phases ---

    def run(self, minutes: float, unloaded_seconds: float) -> Findings:
        """Everything, from the first client to the end of the broker."""
        self.found.minutes = minutes
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.broker)
            self.create_topics()

            def worker(name: str, *arguments: str) -> Worker:
                module, port = f"tests.soak.{name}", str(self.broker.port)
                made = Worker(module, self._folder, port, *arguments)
                stack.callback(made.close)
                return made

            producer, reader = worker("well_behaved", "produce"), worker("well_behaved", "fetch")
            abuse = worker("abuse")
            real = worker("real_clients", *(["forgetful"] if self._is_forgetful else []))
            abuse.ask("fill")
            measured = (producer, reader)
            for one in measured:
                one.ask("phase-unloaded")
            time.sleep(unloaded_seconds)
            for one in measured:
                one.ask("phase-loaded")
            # Real clients do not report how often they were rejected, so they are first.
            real.ask("start")
            abuse.ask("start")
            self._load(minutes * 60, measured, (abuse, real))
            self._finish(measured, (abuse, real))
        return self.found

    def _load(
        self, seconds: float, measured: tuple[Worker, Worker], others: tuple[Worker, Worker]
    ) -> None:
        begun = time.monotonic()
        full_at = [share * seconds for share in FULL_AT]
        full_seconds = min(FULL_SECONDS_MAX, FULL_SHARE * seconds)
        while (elapsed := time.monotonic() - begun) < seconds:
            for one in (*measured, *others):
                one.require_alive()
            if full_at and elapsed >= full_at[0]:
                full_at.pop(0)
                self._fill_disk(full_seconds, measured, others[1])
            if elapsed >= RELOAD_SECONDS * (self.found.rewrites + 1):
                self.found.rewrites += 1
                self._write_settings(self.found.rewrites)
            if elapsed > WARM_UP_SHARE * seconds:
                rss_mb = self.broker.usage().rss_bytes / 1e6
                self.found.rss_samples.append((elapsed, rss_mb))
            time.sleep(TICK_SECONDS)

    def _fill_disk(self, seconds: float, measured: tuple[Worker, Worker], real: Worker) -> None:
        """Somebody else's file takes the room, for a while."""
        unsettled = real.ask("hold")["unsettled"]
        assert not unsettled, f"{unsettled} records were not settled before the disk was filled"
        before = self.metrics().get(STORAGE_ERRORS, 0.0)
        for one in measured:
            one.ask("phase-full")
        filler = self._disk / "filler"
        space = os.statvfs(self._disk)
        keep_bytes = FREE_SHARE_WHEN_FULL * space.f_blocks * space.f_frsize
        size = max(MEBIBYTE, int(space.f_bavail * space.f_frsize - keep_bytes))
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
        time.sleep(seconds)
        filler.unlink()
        # It checks every second; then the writers may continue.
        time.sleep(2.5)
        refused = self.metrics().get(STORAGE_ERRORS, 0.0) - before
        self.found.full_refusals.append(round(refused))
        for one in measured:
            one.ask("phase-loaded")
        real.ask("go")

    def _finish(self, measured: tuple[Worker, Worker], others: tuple[Worker, Worker]) -> None:
        found, (producer, reader), (abuse, real) = self.found, measured, others
        found.abuse = abuse.ask("stop")
        found.producer, found.reader = producer.ask("stop"), reader.ask("stop")
        found.ledger = producer.ask("verify")
        found.real = real.ask("stop", 400)
        found.metrics = self.metrics()
        found.exit_code = self.broker.stop(60)


@contextlib.contextmanager
def stage(without: str = "") -> Iterator[Soak]:
    """A soak on a disk of its own, which is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    disk = LoopDisk(folder, DISK_BYTES)
    try:
        yield Soak(folder, disk.path, without)
    finally:
        disk.close()
        shutil.rmtree(folder, ignore_errors=True)


def soak(minutes: float, *, unloaded_seconds: float = 60.0, without: str = "") -> Findings:
    """Run one, perhaps without a guard; an error tells what the broker said last."""
    with stage(without) as scene:
        try:
            return scene.run(minutes, unloaded_seconds)
        except Exception as error:
            error.add_note(f"the broker's log ends:\n{scene.broker.log_text()[-3000:]}")
            raise
