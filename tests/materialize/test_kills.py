"""kill -9 of `penstock materialize`: rows and positions agree after every kill (marker `crash`).

One test kills the writer at every SQL statement. The other kills the real command at random
moments while producers write; a part of the starts builds a new generation. PENSTOCK_SEED repeats
a run; PENSTOCK_KILLS sets the number.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest

from penstock.client.calls import NewTopic
from penstock.client.records.topic_writer import TopicWriter
from penstock.testing import Broker
from tests.materialize.conftest import load
from tests.materialize.topic_model import (
    cluster_at,
    compacted,
    environment,
    stored_positions,
    stored_rows,
    topic_events,
)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(1_200)]

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("PENSTOCK_KILLS", "50"))
KEYS = 200
PROGRESS_SECONDS_MAX = 20.0
STATEMENTS_MIN = 60


def test_a_kill_at_every_statement(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.materialize.store_steps", str(tmp_path)],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(f"killed before each of {done.stdout.strip()} statements")
    assert int(done.stdout) >= STATEMENTS_MIN


class Load(threading.Thread):
    """Writes updates and tombstones of few keys, without an end."""

    def __init__(self, bootstrap: str, topic: str, seed: int) -> None:
        super().__init__()
        self._address = bootstrap
        self._topic = topic
        self._dice = random.Random(seed)
        self.is_ended = threading.Event()

    def run(self) -> None:
        with cluster_at(self._address) as cluster:
            writer = TopicWriter(cluster, self._topic)
            number = 0
            while not self.is_ended.wait(0.02):
                for _ in range(self._dice.randrange(1, 20)):
                    number += 1
                    key = b"key-%d" % self._dice.randrange(KEYS)
                    value = None if self._dice.random() < 0.2 else b'{"n": %d}' % number
                    writer.append(key, value)
                writer.flush()


def check_file(bootstrap: str, path: Path, topic: str) -> None:
    """Compare rows with the events below the positions."""
    positions = stored_positions(path, topic)
    rows = stored_rows(path, topic)
    below = [one for one in topic_events(bootstrap, topic) if one.offset < positions[one.partition]]
    assert rows == compacted(below)


def all_positions(path: Path) -> list[tuple[int, ...]]:
    """The positions of the served generation and of a build."""
    connection = sqlite3.connect(path)
    found = connection.execute(
        'SELECT generation, "partition", next_offset FROM penstock_positions ORDER BY 1, 2'
    ).fetchall()
    connection.close()
    return found


def test_kills_at_random_moments(tmp_path: Path) -> None:
    seed = int(os.environ.get("PENSTOCK_SEED", "1"))
    dice = random.Random(seed)
    path = tmp_path / "store" / "materialized.sqlite"
    with Broker() as broker, cluster_at(broker.bootstrap_server) as cluster:
        cluster.create_topic(NewTopic("price", 3, 1))
        producing = Load(broker.bootstrap_server, "price", seed)
        producing.start()
        commands = Commands(tmp_path)
        try:
            reached = [
                killed_run(
                    commands, broker.bootstrap_server, path, dice, is_refresh=number % 5 == 3
                )
                for number in range(KILLS)
            ]
        finally:
            producing.is_ended.set()
            producing.join()
            commands.close()
        load(broker.bootstrap_server, path, ["price"])
        check_file(broker.bootstrap_server, path, "price")
        events = topic_events(broker.bootstrap_server, "price")
        assert stored_rows(path, "price") == compacted(events)
        assert sum(stored_positions(path, "price").values()) == len(events)
    advanced = sum(later != earlier for earlier, later in pairwise(reached))
    print(f"{KILLS} kills, {advanced} after progress, {len(events)} records")
    assert advanced >= KILLS // 2, "most kills came before anything was written"


class Commands:
    """Starts commands in processes that can be killed."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.materialize.forked_command"],
            cwd=ROOT,
            env=environment(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, *words: str) -> int:
        """Return the process id of a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return int(self._line())

    def kill(self, process_id: int) -> None:
        """Kill the command, which must still run."""
        os.kill(process_id, signal.SIGKILL)
        assert int(self._line()) == signal.SIGKILL

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def killed_run(
    commands: Commands, bootstrap: str, path: Path, dice: random.Random, *, is_refresh: bool
) -> list[tuple[int, ...]]:
    before = all_positions(path) if has_topic(path) else []
    process_id = commands.start(
        *("materialize", "price", "--index", "$.n", "--port", "0", "--bootstrap", bootstrap),
        *("--store", str(path.parent), *(["--refresh"] if is_refresh else [])),
    )
    if dice.random() < 0.8:
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while not (has_topic(path) and all_positions(path) != before):
            assert time.monotonic() < deadline, "no progress"
            time.sleep(0.005)
        time.sleep(dice.uniform(0, 0.2))
    else:
        time.sleep(dice.uniform(0, 0.3))  # also while it starts
    commands.kill(process_id)
    if not has_topic(path):
        return []
    check_file(bootstrap, path, "price")
    return all_positions(path)


def has_topic(path: Path) -> bool:
    """Whether the file has a table yet; a kill may have come before."""
    if not path.exists():
        return False
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'price'").fetchone()
    connection.close()
    return bool(found[0])
