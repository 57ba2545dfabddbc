"""The judgement of the outage benchmark, its link, and a whole run on a system in memory."""

import queue
import socket
import threading
from pathlib import Path

import pytest

from benchmarks.outages import outage_run
from benchmarks.outages.cut_link import CutLink
from benchmarks.outages.outage_plan import (
    Direction,
    Plan,
    message,
    number_in,
    plan_of,
    row,
    table,
)
from benchmarks.outages.outage_run import Deliver, run_plan


def test_the_judgement_counts_what_is_lost_doubled_and_out_of_order() -> None:
    found = Direction(accepted={number: number + 10 for number in range(5)})
    for number, position in ((0, 10), (2, 12), (1, 11), (1, 15), (2, 12), (9, 19)):
        found.deliver(number, position)
    assert found.missing == [3, 4]
    assert found.doubled == 1
    assert found.out_of_order == 1
    assert found.keeps_positions is True
    moved = Direction(accepted={0: 0}, received={0: [1]})
    assert moved.keeps_positions is False
    without = Direction(accepted={0: None})
    without.deliver(0, None)
    without.deliver(0, None)
    assert (without.doubled, without.keeps_positions) == (1, None)


def test_a_seed_gives_the_same_plan() -> None:
    plan = plan_of(1, 30.0, 100.0, 200)
    assert plan == plan_of(1, 30.0, 100.0, 200) != plan_of(2, 30.0, 100.0, 200)
    assert plan.cut_at < plan.kill_at < plan.restore_at < plan.publish_until
    assert (len(message(7, 200)), number_in(message(7, 200))) == (200, 7)
    assert number_in(message(123_456, 3)) == 123_456


def test_a_cut_link_carries_nothing_and_resets_at_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = CutLink(server.getsockname()[1])
        link.start()
        with socket.create_connection(("127.0.0.1", link.port), 5) as client:
            there, _ = server.accept()
            there.settimeout(5)
            client.sendall(b"a")
            assert there.recv(9) == b"a"
            link.cut()
            client.sendall(b"b")
            there.settimeout(0.1)
            try:
                arrived = there.recv(9)
            except TimeoutError:
                arrived = b""
            assert arrived == b""
            link.restore()
            client.settimeout(5)
            try:
                ended = client.recv(9)
            except ConnectionResetError:
                ended = b""
            assert ended == b""
            there.close()
        with socket.create_connection(("127.0.0.1", link.port), 5) as client:
            there, _ = server.accept()
            client.sendall(b"c")
            there.settimeout(5)
            assert there.recv(9) == b"c"
            there.close()
        link.stop()


class ForgetfulSystem:
    """A system in memory that loses what waits when its site is killed."""

    name = "forgetful"

    def __init__(self) -> None:
        self._is_cut = False
        self._waiting: list[int] = []
        self._up: queue.Queue[int] = queue.Queue()
        self._down: queue.Queue[int] = queue.Queue()
        self.killed = 0

    def start(self, folder: Path) -> None:
        """Start nothing."""

    def publish_up(self, number: int, content: bytes) -> int:
        assert number_in(content) == number
        if self._is_cut:
            self._waiting.append(number)
        else:
            self._up.put(number)
        return number

    def publish_down(self, number: int, content: bytes) -> int:
        self._down.put(number)
        return number

    def receive_up(self, deliver: Deliver, is_done: threading.Event) -> None:
        self._receive(self._up, deliver, is_done)

    def receive_down(self, deliver: Deliver, is_done: threading.Event) -> None:
        self._receive(self._down, deliver, is_done)

    def _receive(
        self, numbers: "queue.Queue[int]", deliver: Deliver, is_done: threading.Event
    ) -> None:
        while not is_done.is_set():
            try:
                number = numbers.get(timeout=0.01)
            except queue.Empty:
                continue
            deliver(number, number)

    def cut(self) -> None:
        self._is_cut = True

    def restore(self) -> None:
        self._is_cut = False
        for number in self._waiting:
            self._up.put(number)

    def kill_site(self) -> None:
        self.killed += 1
        self._waiting.clear()

    def start_site(self) -> None:
        """Start nothing."""

    def memory_bytes(self) -> int:
        return 1_000_000

    def disk_bytes(self) -> int:
        return 0

    def stop(self) -> None:
        """Stop nothing."""


def test_a_run_finds_the_messages_that_a_system_loses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage_run, "LOOK_SECONDS", 0.01)
    plan = Plan(0.05, 0.15, 0.25, 0.3, 0.1, 200.0, 20)
    system = ForgetfulSystem()
    outcome = run_plan(system, plan, tmp_path)
    assert system.killed == 1
    assert not outcome.failures
    assert len(outcome.up.accepted) == len(outcome.down.accepted) == plan.count
    assert outcome.up.missing
    assert not outcome.down.missing
    assert outcome.catch_up_seconds is None
    found = row(outcome)
    assert found["lost up / down"] == f"{len(outcome.up.missing)} / 0"
    assert found["catch-up"] == "never"
    assert table([found, found]).splitlines()[0] == "| | forgetful | forgetful |"
