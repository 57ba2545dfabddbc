"""Rules of queues, push, up pipes and local tables, removed one by one: a test must find each.

`RULES` has a function for each rule, which returns the patches that remove it, and the tests that
must fail then. The tests run in a process of their own, in which this file is a plugin of pytest.
The rules of pipes down a tree and of the registry are in `tests.edge_sim`.

    python -m tests.edge_rules.removed_delivery_rules          each rule, with the failed assertion
    python -m tests.edge_rules.removed_delivery_rules NAME     one rule
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import Phase, settings

from penstock.coordinator.shares import share_checks
from penstock.coordinator.shares.delivery import acquisition, share_delivery
from penstock.coordinator.shares.delivery.runs import ACQUIRED, LETTER_DUE, LETTER_STORING, RunMap
from penstock.coordinator.shares.delivery.share_delivery import ShareDelivery
from penstock.edge.pipes import up_pipe
from penstock.edge.pipes.up_pipe import UpPartition
from penstock.edge.push import limits
from penstock.edge.push.refreshing import RefreshingSubscription
from penstock.edge.push.session_subscription import Subscription
from penstock.materialize.row_store import RowStore
from penstock.node.shares.live_partition import LivePartition
from penstock.storage.log.log_directory import LogDirectory

ROOT: Final = Path(__file__).resolve().parents[2]
VARIABLE: Final = "PENSTOCK_REMOVED_RULE"
EXAMPLES: Final = "PENSTOCK_MODEL_EXAMPLES"
SECONDS_MAX: Final = 300
SHARES: Final = "tests/coordinator/shares"
DELIVERY_MODEL: Final = f"{SHARES}/delivery/test_delivery_model.py"
DELIVERY_CASES: Final = f"{SHARES}/delivery/test_share_delivery.py"
LETTER_CASES: Final = f"{SHARES}/delivery/test_letter_states.py"
STATE_MODEL: Final = f"{SHARES}/test_share_shard_model.py"

Patch = tuple[object, str, Any]


class Rule(NamedTuple):
    """A rule that can be removed."""

    remove: Callable[[], Sequence[Patch]]
    tests: str


def durable_before_answer() -> list[Patch]:
    """Answer an acknowledgement before its state is durable."""
    original = LivePartition.acknowledge

    def acknowledge(self: LivePartition, *words: Any) -> Any:  # noqa: ANN401
        answer = original(self, *words)
        if not answer.is_set:
            answer.set(None)
        return answer

    return [(LivePartition, "acknowledge", acknowledge)]


def pending_is_kept() -> list[Patch]:
    """Release records whose acknowledgement is being written, when their lock is over."""

    def expire(self: ShareDelivery, now: float) -> None:
        self._release([run for run in self._runs if run.state == ACQUIRED and run.deadline <= now])

    return [(ShareDelivery, "expire", expire)]


def lock_expiry() -> list[Patch]:
    """Keep the records of a member for ever."""
    return [(ShareDelivery, "expire", lambda *_: None)]


def members_end() -> list[Patch]:
    """Keep the records of a member that is gone."""
    return [(ShareDelivery, "release_member", lambda *_: None)]


def delivery_limit() -> list[Patch]:
    """Make a record available again at the limit of deliveries."""
    original, acquire_of = ShareDelivery._limited, acquisition.acquire

    def limited(self: ShareDelivery, run: Any, target: int, **named: Any) -> int:  # noqa: ANN401
        return original(self, run, target, **named) if named.get("is_rejected") else target

    def unlimited(*words: Any) -> Any:  # noqa: ANN401
        runs, offset, batches, wanted = words
        return acquire_of(runs, offset, batches, wanted._replace(delivery_limit=1 << 30))

    return [(ShareDelivery, "_limited", limited), (share_delivery, "acquire", unlimited)]


def window_bound() -> list[Patch]:
    """Let members acquire any number of records."""
    return [(RunMap, "room", lambda *_: 1 << 30)]


def letter_after_state() -> list[Patch]:
    """Send dead letters before the state of their records is durable."""
    original = ShareDelivery.take_write

    def take_write(self: ShareDelivery) -> Any:  # noqa: ANN401
        write = original(self)
        self._turn_letters(LETTER_STORING, LETTER_DUE)
        return write

    return [(ShareDelivery, "take_write", take_write)]


def leader_fence() -> list[Patch]:
    """Let a former leader write states."""
    return [(share_checks, "fenced_leader", lambda *_: None)]


def state_fence() -> list[Patch]:
    """Let a leader write into a state that was reset."""
    return [(share_checks, "fenced_state", lambda *_: None)]


def unsent_is_kept() -> list[Patch]:
    """Let retention delete records that were not sent to the parent."""
    return [(LogDirectory, "retained_from", lambda _self, _at, _start, limit: limit)]


def sent_batch() -> list[Patch]:
    """Do not compare the last batch that was sent with the log."""

    def compared(self: UpPartition, _own: object) -> up_pipe.Action:
        assert self._awaited is not None
        return self._send_from(self._awaited.offset)

    return [(UpPartition, "compared", compared)]


def counted_gaps() -> list[Patch]:
    """Skip deleted records without a count."""

    def gap(self: UpPartition, _sent: int, start: int) -> up_pipe.Action:
        return self._send_from(start)

    return [(UpPartition, "_gap", gap)]


def credit() -> list[Patch]:
    """Read the log without credit."""

    def next_partition(self: Subscription) -> int | None:
        return self._ready.popitem()[0] if self._ready and self.ending_id is None else None

    return [(Subscription, "next_partition", next_partition)]


def unacknowledged_bytes() -> list[Patch]:
    """Send any number of bytes before the first ACK."""
    return [(limits, "UNACKNOWLEDGED_BYTES_MAX", 1 << 40)]


def ready_before_commit() -> list[Patch]:
    """Commit positions of a new data set before READY was acknowledged."""
    return [(RefreshingSubscription, "acknowledge", Subscription.acknowledge)]


def rows_with_positions() -> list[Patch]:
    """Write rows and positions of a local table without a transaction."""
    return [(RowStore, "_transaction", _without_transaction)]


@contextmanager
def _without_transaction(store: RowStore) -> Iterator[Callable[..., Any]]:
    yield store._connection.execute


RULES: Final[dict[str, Rule]] = {
    remove.__name__: Rule(remove, tests)
    for remove, tests in (
        (durable_before_answer, "tests/node/shares/test_live_partition.py"),
        (pending_is_kept, DELIVERY_MODEL),
        (lock_expiry, DELIVERY_MODEL),
        (members_end, DELIVERY_MODEL),
        (delivery_limit, DELIVERY_MODEL),
        (window_bound, DELIVERY_CASES),
        (letter_after_state, LETTER_CASES),
        (leader_fence, STATE_MODEL),
        (state_fence, STATE_MODEL),
        (unsent_is_kept, "tests/node/pipes/test_up_pipes.py"),
        (sent_batch, "tests/edge/pipes/test_up_pipe.py"),
        (counted_gaps, "tests/edge/pipes/test_up_pipe.py"),
        (credit, "tests/edge/push/test_push_session.py"),
        (unacknowledged_bytes, "tests/edge/push/test_push_session.py"),
        (ready_before_commit, "tests/edge/push/test_refreshing.py"),
        (rows_with_positions, "tests/materialize/test_row_store.py"),
    )
}


def pytest_configure(config: pytest.Config) -> None:
    """Remove the rule of this process. The first failure is enough: examples are not reduced."""
    name = os.environ.get(VARIABLE)
    if name is not None:
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("removed", settings.get_profile("sample"), phases=phases)
        settings.load_profile("removed")
        for target, attribute, value in RULES[name].remove():
            patched = patch.object(target, attribute, value)
            patched.start()
            config.add_cleanup(patched.stop)


def finding(name: str) -> str | None:
    """Run the tests without a rule; return the first failed assertion, None if all pass."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly"),
            *("-p", "tests.edge_rules.removed_delivery_rules", "-m", "crash or not crash"),
            RULES[name].tests,
        ],
        cwd=ROOT,
        env=os.environ | {VARIABLE: name, EXAMPLES: "500", "PYTHONPATH": "src:."},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    if done.returncode == 0:
        return None
    assert done.returncode == 1, done.stdout[-2_000:] + done.stderr[-2_000:]
    test = re.search(r"^FAILED \S*::(\S+)", done.stdout, re.MULTILINE)
    assert test is not None, done.stdout[-2_000:]
    failed = re.search(r"^E\s+(\S.*)$", done.stdout, re.MULTILINE)
    return f"{test[1]}: {failed[1] if failed else 'failed'}"


def main(names: Sequence[str]) -> int:
    """Print what finds each removed rule; return the number of rules that nothing finds."""
    missed = 0
    for name in names or RULES:
        found = finding(name)
        missed += found is None
        print(f"{name}: {found or 'NOT FOUND'}", flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(min(1, main(sys.argv[1:])))
