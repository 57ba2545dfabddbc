"""Each safeguard taken out of a running broker makes the crash check fail (marker `crash`).

The same rounds as in `test_kill` and `test_power_cut`, one crash each, on a broker that `unguarded`
has changed. Without the sync, the watermark, the sequence check or the checksum the ledger must
report a violation of the kind that the guard is there for. With only the dangerous moments extended
it must report none: this shows that the missing guard was detected, not the delay.

The sync of directories is missing here: ext4 keeps the name of a file whose data is synced, which
POSIX does not promise. `test_guards_bite` takes it out on a disk that keeps no more than POSIX.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.records.batch import LOG_OVERHEAD_BYTES, iterate_headers
from tests.crash.clients import TOPIC
from tests.crash.loop_disk import LoopDisk, stop_processor
from tests.crash.rounds import Run, running, seed_of_this_run
from tests.oracle.penstock_broker import penstock_broker
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

UNGUARDED = Path(__file__).with_name("unguarded.py")
LOAD_SECONDS = 0.5
RUNS_MAX = 4
"""Whether a client is there at the moment that matters is chance."""
Crash = Callable[[Run, LoopDisk], None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    made = LoopDisk(tmp_path)
    yield made
    made.close()


def changed_broker(disk: LoopDisk, changes: str, attempt: int = 0) -> RunningBroker:
    """A broker with a folder of its own on the disk, started through `unguarded`."""
    broker = penstock_broker(
        disk.path.parent / f"broker-{attempt}",
        data_dir=disk.path / f"data-{attempt}",
        from_source=True,
    )
    python, _module, _name, *rest = broker.recipe.command
    command = [python, str(UNGUARDED), changes, *rest]
    recipe = dataclasses.replace(broker.recipe, command=command)
    return RunningBroker(recipe, folder=broker.folder, port=broker.port)


def power_cut(run: Run, disk: LoopDisk) -> None:
    """One power cut. The clients end with it."""
    time.sleep(LOAD_SECONDS)
    stop_processor(run.broker.pid)
    disk.cut()
    run.broker.kill()
    # Now: a record that is sent once more may come to lie where the vanished one was.
    run.abandon()
    disk.restore()
    run.broker.start()


def kill(run: Run, _disk: LoopDisk) -> None:
    """One kill -9, and the retries of the producers after it."""
    time.sleep(LOAD_SECONDS)
    run.broker.kill()
    run.broker.start()
    run.wait_for_progress()


def torn_write(run: Run, _disk: LoopDisk) -> None:
    """A kill -9 that leaves a damaged batch behind the last whole one. The clients end with it."""
    run.broker.kill()
    run.abandon()
    for folder in run.broker.data_dir.glob(f"{TOPIC}-*"):
        append_torn_batch(sorted(folder.glob("*.log")))
    run.broker.start()


def append_torn_batch(segments: list[Path]) -> None:
    """What a torn write can leave: the right length and offset, one wrong byte in a value."""
    data = next(data for path in reversed(segments) if (data := path.read_bytes()))
    position, header = list(iterate_headers(data[: _end_of_batches(data)]))[-1]
    torn = bytearray(data[position : position + header.size_bytes])
    torn[:8] = (header.last_offset + 1).to_bytes(8, "big")
    torn[-2] ^= 0x55
    with segments[-1].open("r+b") as newest:
        newest.seek(_end_of_batches(segments[-1].read_bytes()))
        newest.write(torn)


def _end_of_batches(data: bytes) -> int:
    """Where the last batch of a segment ends: zeros may follow, which are room for appends."""
    position = 0
    while length := int.from_bytes(data[position + 8 : position + 12], "big"):
        position += LOG_OVERHEAD_BYTES + length
    return position


@pytest.mark.parametrize(
    ("changes", "crash", "expected"),
    [
        ("ack-before-sync", power_cut, "lost"),
        ("watermark-ahead,slow-sync", power_cut, "vanished"),
        ("no-sequence-check,late-answer", kill, "duplicate"),
        ("no-checksum", torn_write, "garbage"),
    ],
)
def test_without_the_guard_a_promise_is_broken(
    disk: LoopDisk, changes: str, crash: Crash, expected: str
) -> None:
    for attempt in range(RUNS_MAX):
        seed = seed_of_this_run() + attempt
        with changed_broker(disk, changes, attempt) as broker, running(broker, seed) as run:
            crash(run, disk)
            found = [text for text in run.violations() if text.startswith(f"{expected}:")]
        if found:
            print(f"\nguard {changes}: {len(found)} times {found[0]} (run {attempt + 1})")
            return
    pytest.fail(f"without the guard nothing is {expected}, in {RUNS_MAX} runs")


def test_with_every_guard_and_longer_dangerous_moments_no_promise_is_broken(
    disk: LoopDisk,
) -> None:
    changes = "slow-sync,late-answer"
    with changed_broker(disk, changes) as broker, running(broker, seed_of_this_run()) as run:
        for crash in (kill, power_cut, torn_write):
            crash(run, disk)
            assert run.violations() == []
