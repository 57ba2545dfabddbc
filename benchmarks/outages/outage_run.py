"""One run of the plan on one system."""

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from benchmarks.outages.outage_plan import Direction, Outcome, Plan, message

LOOK_SECONDS = 0.2
SETTLE_SECONDS = 3.0
"""After the last message was received: doubled ones may follow."""

Deliver = Callable[[int, int | None], None]


class System(Protocol):
    """A site and its headquarters, with a link between them."""

    name: str

    def start(self, folder: Path) -> None:
        """Start both sides, and wait until messages flow."""
        ...

    def publish_up(self, number: int, content: bytes) -> int | None:
        """Publish at the site; return the position, or raise `OSError` if it was not accepted."""
        ...

    def publish_down(self, number: int, content: bytes) -> int | None:
        """Publish at the headquarters."""
        ...

    def receive_up(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Deliver messages at the headquarters until done."""
        ...

    def receive_down(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Deliver messages at the site until done."""
        ...

    def cut(self) -> None:
        """Cut the link."""
        ...

    def restore(self) -> None:
        """Restore the link."""
        ...

    def kill_site(self) -> None:
        """Kill the processes of the site."""
        ...

    def start_site(self) -> None:
        """Start them again."""
        ...

    def memory_bytes(self) -> int:
        """Return the most memory that the site has used; called often."""
        ...

    def disk_bytes(self) -> int:
        """Return the disk space of the site."""
        ...

    def stop(self) -> None:
        """End everything."""
        ...


class _Run:
    def __init__(self, system: System, plan: Plan) -> None:
        self.system = system
        self.plan = plan
        self.up, self.down = Direction(), Direction()
        self.done = threading.Event()
        self.failures: list[str] = []
        self.waiting = [0, 0]
        self.started_at = 0.0

    def publish(self, direction: Direction, send: Callable[[int, bytes], int | None]) -> None:
        plan = self.plan
        for number in range(plan.count):
            pause = self.started_at + number / plan.rate - time.monotonic()
            if pause > 0:
                time.sleep(pause)
            while not self.done.is_set():
                try:
                    direction.accepted[number] = send(number, message(number, plan.message_bytes))
                    break
                except OSError:
                    time.sleep(0.1)

    def receive(self, direction: Direction, read: Callable[..., None]) -> None:
        while not self.done.is_set():
            try:
                read(direction.deliver, self.done)
            except OSError:
                time.sleep(0.1)

    def guarded(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        def run() -> None:
            try:
                work(*arguments)
            except Exception as error:  # noqa: BLE001 (a report, not a crash)
                self.failures.append(f"{work.__name__}: {error!r}")

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def wait_until(self, seconds: float) -> None:
        while time.monotonic() < self.started_at + seconds:
            self.system.memory_bytes()
            time.sleep(LOOK_SECONDS)

    def is_complete(self) -> bool:
        return all(
            len(one.accepted) == self.plan.count and not one.missing for one in (self.up, self.down)
        )

    def drain(self) -> float | None:
        """Wait until nothing is missing; return when the messages of the outage had arrived."""
        restored_at = time.monotonic()
        backlog = [(one, set(one.accepted)) for one in (self.up, self.down)]
        self.waiting = [len(numbers - one.received.keys()) for one, numbers in backlog]
        caught_up: float | None = None
        while time.monotonic() < restored_at + self.plan.drain_seconds_max:
            self.system.memory_bytes()
            if caught_up is None and not any(
                numbers - one.received.keys() for one, numbers in backlog
            ):
                caught_up = time.monotonic() - restored_at
            if self.is_complete():
                time.sleep(SETTLE_SECONDS)
                return caught_up
            time.sleep(LOOK_SECONDS)
        return None


def run_plan(system: System, plan: Plan, folder: Path) -> Outcome:
    """Carry out the plan."""
    run = _Run(system, plan)
    system.start(folder)
    try:
        threads = [
            run.guarded(run.receive, run.up, system.receive_up),
            run.guarded(run.receive, run.down, system.receive_down),
        ]
        run.started_at = time.monotonic()
        threads += [
            run.guarded(run.publish, run.up, system.publish_up),
            run.guarded(run.publish, run.down, system.publish_down),
        ]
        run.wait_until(plan.cut_at)
        system.cut()
        run.wait_until(plan.kill_at)
        system.kill_site()
        system.start_site()
        run.wait_until(plan.restore_at)
        system.restore()
        caught_up = run.drain()
        run.done.set()
        for thread in threads:
            thread.join(10)
        memory, disk = system.memory_bytes(), system.disk_bytes()
    finally:
        run.done.set()
        with contextlib.suppress(OSError):
            system.stop()
    return Outcome(
        system.name, run.up, run.down, run.waiting, caught_up, memory, disk, run.failures
    )
