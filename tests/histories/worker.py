"""A client that does random operations, as a process of its own.

    python -m tests.histories.worker PLAN BOOTSTRAP LIBRARY SLOT NUMBER TARGETS

It prints one JSON line for each entry of the history, and besides `invoke` and the completions a
line `update`: the operation's state so far, for the case that the process is killed. The slot gives
the transactional id, which a worker's successor takes over; the number is unique in a run and makes
processes and values unique. It ends when its input ends, after the operation in hand.

With TARGETS (`{key: offset}`) it is a reader of the final phase: it reads every key from the
beginning until the last target is reached.
"""

import dataclasses
import faulthandler
import itertools
import json
import random
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import cast, get_args

from tests.checker.history import Action, Commit, Committed, Name, Op, Poll, Send, Type, op_to_json
from tests.histories.client import Client, Moves, Polled, Refused, SendsIncomplete, Unknown
from tests.histories.plan import (
    PARTITIONS_OF_A_TOPIC,
    Library,
    Plan,
    plan_from_json,
    transactional_id_of,
)

VALUES_OF_A_WORKER = 1_000_000
PROCESSES_OF_A_WORKER = 1_000
"""Room for the clients that one worker opens after one another."""
POLL_SECONDS = 0.1
RECORDS_MAX = 200
ACTIONS_MAX = 4
PAUSE_SECONDS_MAX = 0.02
"""Between operations: a run is about where faults fall, not about speed."""
OPEN_PAUSE_SECONDS = 0.3
REASSIGN_CHANCE = 1 / 64
CRASH_CHANCE = 1 / 150
COMMITTED_CHANCE = 1 / 12
ABORT_CHANCE = 0.1
"""Before each step of a transaction."""
FINAL_SECONDS_MAX = 60.0
FINAL_POLL_SECONDS = 0.3
EMPTY_POLLS_AT_THE_END = 4

is_over = threading.Event()


class Abandoned(Exception):  # noqa: N818
    """The transaction is given up on purpose."""


def open_client(library: Library, bootstrap: str, plan: Plan, transactional_id: str) -> Client:
    """The adapter of this library; imported here, since each is slow to import."""
    if library == "kafka-python":
        from tests.histories.kafka_python_client import KafkaPythonClient

        return KafkaPythonClient(bootstrap, plan, transactional_id)
    if library == "aiokafka":
        from tests.histories.aiokafka_client import AiokafkaClient

        return AiokafkaClient(bootstrap, plan, transactional_id)
    from tests.histories.confluent_client import ConfluentClient

    return ConfluentClient(bootstrap, plan, transactional_id)


class Teller:
    """Prints the entries of one worker's operations."""

    def __init__(self) -> None:
        self.moves = Moves()
        """Since the operation in hand began."""
        self._op = Op(0, 0, 0, "invoke", "crash")

    def invoke(
        self,
        process: int,
        name: Name,
        actions: Sequence[Action] = (),
        keys: Sequence[int] = (),
        *,
        is_from_beginning: bool = False,
    ) -> None:
        """An operation begins."""
        self.moves = Moves()
        now_ns = time.monotonic_ns()
        self._op = Op(
            0, now_ns, process, "invoke", name, tuple(actions), tuple(keys), is_from_beginning
        )
        self._print("op", self._op)

    def update(self, actions: Sequence[Action]) -> None:
        """What is known before a step that may not return."""
        op = dataclasses.replace(self._op, actions=tuple(actions), rebalanced=self.moves.keys)
        self._print("update", op)

    def complete(self, type_: Type, actions: Sequence[Action] = (), error: object = "") -> None:
        """The operation is over."""
        op = dataclasses.replace(
            self._op,
            time_ns=time.monotonic_ns(),
            type=type_,
            actions=tuple(actions),
            rebalanced=self.moves.keys,
            error=str(error),
        )
        self._print("op", op)

    def _print(self, word: str, op: Op) -> None:
        sys.stdout.write(f"{word} {op_to_json(op)}\n")
        sys.stdout.flush()


@dataclasses.dataclass
class Attempt:
    """How far a transaction came."""

    actions: list[Action] = dataclasses.field(default_factory=list)
    first: dict[int, int] = dataclasses.field(default_factory=dict)
    following: dict[int, int] = dataclasses.field(default_factory=dict)
    is_commit_begun: bool = False

    def lose(self, taken: set[int]) -> bool:
        """The group took keys; whether this transaction had read some of them.

        Those that come back are read from where the group is: others may have read on.
        """
        lost = taken & self.first.keys()
        for key in lost:
            del self.first[key]
        return bool(lost)

    def note(self, polled: Polled) -> None:
        """Records that the transaction consumes."""
        self.actions.append(Poll(polled))
        for key, records in polled.items():
            offset = records[0][0]
            self.first[key] = min(offset, self.first.get(key, offset))
            self.following[key] = records[-1][0] + 1


class Worker:
    """Clients of one library, one after the other."""

    def __init__(
        self, plan: Plan, bootstrap: str, library: Library, slot: int, number: int
    ) -> None:
        self.plan = plan
        self.bootstrap = bootstrap
        self.library = library
        self.transactional_id = transactional_id_of(slot)
        self.dice = random.Random(f"{plan.seed}/{slot}/{number}")
        self.teller = Teller()
        self.process = number * PROCESSES_OF_A_WORKER
        self.value = number * VALUES_OF_A_WORKER
        self.positions: dict[int, int] = {}
        """Next offsets of assigned keys, kept over clients. A group keeps them itself."""
        self.assigned: frozenset[int] = frozenset()
        """Of this client."""
        self.client: Client | None = None

    # --- The client ---

    def renew(self) -> None:
        """Throw the client away and open another, under a new process number."""
        if self.client is not None:
            self.client.close()
            self.client = None
        self.process += 1
        self.assigned = frozenset()
        while self.client is None:
            if is_over.is_set():
                return
            try:
                self.client = open_client(
                    self.library, self.bootstrap, self.plan, self.transactional_id
                )
            except Unknown:
                time.sleep(OPEN_PAUSE_SECONDS)
        self.choose_keys(self.client)

    def choose_keys(self, client: Client) -> None:
        keys = list(self.plan.keys)
        if self.dice.random() < 2 / 3:
            keys = sorted(self.dice.sample(keys, self.dice.randrange(2, len(keys) + 1)))
        if self.plan.via == "subscribe":
            topics = {key // PARTITIONS_OF_A_TOPIC for key in keys}
            keys = [key for key in self.plan.keys if key // PARTITIONS_OF_A_TOPIC in topics]
            self.teller.invoke(self.process, "subscribe", keys=keys)
            client.subscribe(keys)
        else:
            self.teller.invoke(self.process, "assign", keys=keys)
            # A key that is new to this client starts at its beginning or where another one was.
            others = self.positions if self.dice.random() < 0.7 else {}
            start = {
                key: self.positions[key] if key in self.assigned else others.get(key, 0)
                for key in keys
            }
            self.positions.update(start)
            self.assigned = frozenset(keys)
            client.assign(start)
        self.teller.complete("ok")

    # --- Operations ---

    def run(self) -> None:
        """Operations until the input ends."""
        self.renew()
        while not is_over.is_set() and self.client is not None:
            self.one_operation(self.client)
            time.sleep(self.dice.uniform(0, PAUSE_SECONDS_MAX))
        if self.client is not None:
            self.client.close()

    def one_operation(self, client: Client) -> None:
        if self.dice.random() < CRASH_CHANCE:
            self.teller.invoke(self.process, "crash")
            self.teller.complete("info")
            self.renew()
        elif self.dice.random() < REASSIGN_CHANCE:
            self.choose_keys(client)
        elif self.plan.via == "subscribe" and self.dice.random() < COMMITTED_CHANCE:
            self.ask_committed(client)
        elif self.plan.in_transactions:
            self.transact(client)
        elif self.dice.random() < 0.5:
            self.send(client)
        else:
            self.poll(client)

    def ask_committed(self, client: Client) -> None:
        self.teller.invoke(self.process, "committed")
        try:
            positions = client.committed(self.plan.keys)
        except Unknown as error:
            self.teller.complete("fail", error=error)
        else:
            self.teller.complete("ok", [Committed(positions)])

    def new_sends(self, count: int) -> list[Send]:
        sends = []
        for _ in range(count):
            self.value += 1
            sends.append(Send(self.dice.choice(self.plan.keys), self.value))
        return sends

    def send(self, client: Client) -> None:
        sends = self.new_sends(self.dice.randrange(1, ACTIONS_MAX + 1))
        self.teller.invoke(self.process, "send", sends)
        try:
            done = client.send(sends)
        except SendsIncomplete as error:
            self.teller.complete("fail" if error.is_refused else "info", error.done, error)
            if not error.is_refused:
                self.renew()
        else:
            self.teller.complete("ok", done)

    def polled(self, client: Client) -> tuple[Polled, Moves]:
        """Records, and what the group gave and took meanwhile."""
        found = client.poll(POLL_SECONDS, RECORDS_MAX)
        moves = client.take_moves()
        self.teller.moves.add(moves)
        return found, moves

    def poll(self, client: Client) -> None:
        self.teller.invoke(self.process, "poll")
        found, moves = self.polled(client)
        moved = moves.keys
        self.teller.complete("ok", [Poll(found)])
        following = {key: records[-1][0] + 1 for key, records in found.items()}
        if self.plan.via == "assign":
            self.positions.update(following)
            return
        positions = {key: at for key, at in following.items() if key not in moved}
        if positions:
            self.commit_positions(client, positions)

    def commit_positions(self, client: Client, positions: dict[int, int]) -> None:
        commit = [Commit(positions)]
        self.teller.invoke(self.process, "commit", commit)
        try:
            client.commit_positions(positions)
        except Refused as error:
            self.teller.complete("fail", commit, error)
        except Unknown as error:
            self.teller.complete("info", commit, error)
        else:
            self.teller.complete("ok", commit)

    # --- Transactions ---

    def transact(self, client: Client) -> None:
        kinds = [self.dice.random() < 0.5 for _ in range(self.dice.randrange(1, ACTIONS_MAX + 1))]
        # Neighbouring sends go out together, so that several are in flight.
        steps = [
            self.new_sends(len(list(group))) if is_send else []
            for is_send, group in itertools.groupby(kinds)
        ]
        sends = [send for step in steps for send in step]
        self.teller.invoke(self.process, "txn", sends)
        attempt = Attempt()
        try:
            self.attempt(client, steps, attempt)
        except Unknown as error:
            if attempt.is_commit_begun:
                self.teller.complete("info", attempt.actions, error)
                self.renew()
            else:
                self.give_up(client, attempt, error)
        except (Abandoned, Refused, SendsIncomplete) as error:
            self.give_up(client, attempt, error)
        else:
            self.teller.complete("ok", attempt.actions)
            if self.plan.via == "assign":
                self.positions.update(attempt.following)

    def attempt(self, client: Client, steps: list[list[Send]], attempt: Attempt) -> None:
        client.begin()
        for step in steps:
            self.think()
            if self.dice.random() < ABORT_CHANCE:
                raise Abandoned("on purpose")
            if not step:
                found, moves = self.polled(client)
                lost = attempt.lose(moves.taken)
                attempt.note(found)
                if lost or moves.taken & found.keys():
                    raise Abandoned("a key was taken while it was read")
                continue
            try:
                attempt.actions += client.send(step)
            except SendsIncomplete as error:
                attempt.actions += error.done
                raise
        if self.plan.via == "subscribe" and attempt.following:
            attempt.actions.append(Commit(dict(attempt.following)))
            client.add_positions(attempt.following)
        self.think()
        self.teller.update(attempt.actions)
        attempt.is_commit_begun = True
        client.commit()

    def think(self) -> None:
        if self.plan.think_seconds:
            time.sleep(self.dice.uniform(0, self.plan.think_seconds))

    def give_up(self, client: Client, attempt: Attempt, error: Exception) -> None:
        """No commit was begun, or it is certainly refused: whatever happens now, it failed."""
        is_usable = True
        # A refused commit is aborted already; a transaction that did not begin needs none.
        if not isinstance(error, Refused):
            try:
                client.abort()
            except Unknown:
                is_usable = False
        else:
            is_usable = attempt.is_commit_begun
        self.teller.complete("fail", attempt.actions, error)
        if is_usable:
            is_usable = self.go_back(client, attempt)
        if not is_usable:
            self.renew()

    def go_back(self, client: Client, attempt: Attempt) -> bool:
        """Put the consumer where it was; whether that worked."""
        if self.plan.via == "assign":
            if attempt.first:
                client.assign({key: self.positions[key] for key in self.assigned})
            return True
        for key, offset in attempt.first.items():
            try:
                client.seek(key, offset)
            except Unknown:
                if key not in self.teller.moves.taken:
                    return False
        return True

    # --- The final phase ---

    def read_everything(self, targets: dict[int, int]) -> int:
        """Every key from its beginning to its target; 0 when all were reached in time."""
        self.plan = dataclasses.replace(self.plan, in_transactions=False)
        self.process += 1
        deadline = time.monotonic() + FINAL_SECONDS_MAX
        client = open_client(self.library, self.bootstrap, self.plan, self.transactional_id)
        keys = self.plan.keys
        self.teller.invoke(self.process, "assign", keys=keys, is_from_beginning=True)
        client.assign(dict.fromkeys(keys, 0))
        self.teller.complete("ok")
        left, empty_polls = dict(targets), 0
        # No client writes and nothing is open any more: a poll that stays empty for so long is at
        # the end.
        while (left or empty_polls < EMPTY_POLLS_AT_THE_END) and time.monotonic() < deadline:
            self.teller.invoke(self.process, "poll")
            found = client.poll(FINAL_POLL_SECONDS, RECORDS_MAX * 5)
            self.teller.complete("ok", [Poll(found)])
            empty_polls = 0 if found else empty_polls + 1
            for key, records in found.items():
                if records[-1][0] >= left.get(key, 0):
                    left.pop(key, None)
        if self.plan.via == "subscribe":
            self.ask_committed(client)
        client.close()
        if left:
            sys.stderr.write(f"not reached: {left}\n")
        return 3 if left else 0


def _end_with_input() -> None:
    sys.stdin.read()
    is_over.set()


def main() -> int:
    """See the module."""
    plan_text, bootstrap, library, slot, number, targets = sys.argv[1:]
    assert library in get_args(Library)
    worker = Worker(
        plan_from_json(plan_text),
        bootstrap,
        cast("Library", library),
        int(slot),
        int(number),
    )
    if targets:
        return worker.read_everything({int(key): at for key, at in json.loads(targets).items()})
    # A worker that hangs is asked where, before it is killed.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    threading.Thread(target=_end_with_input, daemon=True).start()
    worker.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
