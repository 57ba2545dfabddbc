"""A simulated log with simulated clients, correct or with one fault put into it.

Guarantees: a seed gives one history. Without a fault it keeps every promise that the checker knows:
transactions with markers and a last stable offset, unknown outcomes that happened or not, crashed
clients, a group whose keys move. With a fault, `fired` counts how often it took effect.

It is NOT a model of Kafka's protocol: no requests, no replicas, no time.
"""

import dataclasses
import random
from collections.abc import Generator, Sequence

from tests.checker.history import Action, Commit, Committed, Name, Op, Poll, Send, Type

KEYS = (0, 1, 2)
WORKERS = 4
POLLED_MAX = 5

FAULTS: dict[str, frozenset[str]] = {
    "lose-acknowledged": frozenset({"lost-write", "unseen", "inconsistent-offsets"}),
    "append-twice": frozenset({"duplicate"}),
    "show-aborted": frozenset({"G1a"}),
    "ignore-last-stable-offset": frozenset({"G1a", "precommitted-read", "int-poll-skip", "G1c"}),
    "skip-in-poll": frozenset({"int-poll-skip", "poll-skip"}),
    "poll-again": frozenset({"int-nonmonotonic-poll", "nonmonotonic-poll"}),
    "tear-commit": frozenset({"lost-write", "unseen"}),
    "swap-sends": frozenset({"int-nonmonotonic-send", "nonmonotonic-send"}),
    "lose-position": frozenset({"impossible-position"}),
    "keep-aborted-positions": frozenset({"impossible-position", "unconsumed"}),
    "no-fencing": frozenset({"consumed-twice"}),
    "garbage": frozenset({"unwritten-read"}),
}
"""Each fault, and the anomalies of which at least one must show it."""


@dataclasses.dataclass
class Transaction:
    """One transaction; `torn` are keys whose marker says the opposite."""

    state: str = "open"
    torn: frozenset[int] = frozenset()

    def state_of(self, key: int) -> str:
        return "aborted" if key in self.torn else self.state


@dataclasses.dataclass(frozen=True)
class Entry:
    """A record, or a marker when it has no value."""

    value: int | None
    transaction: Transaction | None = None


class SimulatedLog:
    """All keys and the group's positions."""

    def __init__(self, dice: random.Random, fault: str | None) -> None:
        self.dice = dice
        self.fault = fault
        self.fired = 0
        self.entries: dict[int, list[Entry]] = {key: [] for key in KEYS}
        self.positions: dict[int, int] = {}

    def strikes(self, fault: str) -> bool:
        """Whether the fault is the one put in, and comes to bear now."""
        if self.fault == fault and self.dice.random() < 0.3:
            self.fired += 1
            return True
        return False

    def append(self, key: int, value: int, transaction: Transaction | None) -> int:
        """The offset it is acknowledged at."""
        entries = self.entries[key]
        offset = len(entries)
        if transaction is None and self.strikes("lose-acknowledged"):
            return offset
        entries.append(Entry(value, transaction))
        if self.strikes("append-twice"):
            entries.append(Entry(value, transaction))
        return offset

    def end(self, transaction: Transaction, state: str, keys: Sequence[int]) -> None:
        """Commit or abort, with a marker in each key."""
        if state == "committed" and len(keys) > 1 and self.strikes("tear-commit"):
            transaction.torn = frozenset(keys[:1])
        transaction.state = state
        for key in keys:
            self.entries[key].append(Entry(None, transaction))

    def read(self, key: int, position: int) -> list[tuple[int, int]]:
        """Committed records from a position on, up to the last stable offset."""
        found: list[tuple[int, int]] = []
        if position > 0 and self.strikes("poll-again"):
            position = 0
        shows_open = self.fault == "ignore-last-stable-offset"
        for offset, entry in enumerate(self.entries[key][position:], start=position):
            state = entry.transaction.state_of(key) if entry.transaction else "committed"
            if state == "open" and not shows_open:
                break
            if state == "aborted" and not self.strikes("show-aborted"):
                continue
            if entry.value is not None:
                self.fired += state == "open"
                found.append((offset, entry.value))
        found = found[: self.dice.randrange(1, POLLED_MAX)]
        if len(found) > 2 and self.strikes("skip-in-poll"):
            del found[1]
        if found and self.strikes("garbage"):
            found[-1] = (found[-1][0], -self.fired)
        return found


class Simulation:
    """The clients, one step of one of them at a time."""

    def __init__(
        self, seed: int, fault: str | None, *, in_group: bool, in_transactions: bool
    ) -> None:
        self.dice = random.Random(seed)
        self.log = SimulatedLog(self.dice, fault)
        self.in_group = in_group
        self.in_transactions = in_transactions
        self.history: list[Op] = []
        self.processes = 0
        self.values = 0
        self.owners: dict[int, int] = {}
        self.rebalances: dict[int, set[int]] = {number: set() for number in range(WORKERS)}

    def run(self, steps: int) -> list[Op]:
        """So many steps, then one reader of everything."""
        workers = [self.worker(number) for number in range(WORKERS)]
        for _ in range(steps):
            next(self.dice.choice(workers))
        for worker in workers:
            worker.close()
        for transaction, keys in self.open_transactions():
            self.log.end(transaction, "aborted", keys)
        self.read_everything()
        return self.history

    def open_transactions(self) -> list[tuple[Transaction, list[int]]]:
        found: dict[int, tuple[Transaction, list[int]]] = {}
        for key, entries in self.log.entries.items():
            for entry in entries:
                if entry.transaction and entry.transaction.state == "open":
                    keys = found.setdefault(id(entry.transaction), (entry.transaction, []))[1]
                    if key not in keys:
                        keys.append(key)
        return list(found.values())

    def note(
        self,
        process: int,
        type_: Type,
        name: Name,
        actions: Sequence[Action] = (),
        *,
        keys: Sequence[int] = (),
        rebalanced: frozenset[int] = frozenset(),
    ) -> None:
        place = len(self.history)
        entry = Op(place, place, process, type_, name, tuple(actions), tuple(keys))
        self.history.append(dataclasses.replace(entry, rebalanced=rebalanced))

    def new_process(self) -> int:
        self.processes += 1
        return self.processes

    def rebalance(self) -> None:
        """Give the keys to other workers."""
        for key in KEYS:
            owner = self.dice.randrange(WORKERS)
            before = self.owners.get(key)
            if owner != before:
                self.owners[key] = owner
                self.rebalances[owner].add(key)
                if before is not None:
                    self.rebalances[before].add(key)

    def worker(self, number: int) -> Generator[None, None, None]:
        """One client after the other; each step is one action."""
        while True:
            process = self.new_process()
            known = self.log.positions if self.in_group else {}
            positions = {key: known.get(key, 0) for key in KEYS}
            chosen: Name = "subscribe" if self.in_group else "assign"
            self.note(process, "invoke", chosen, keys=KEYS)
            self.note(process, "ok", chosen, keys=KEYS)
            is_alive = True
            while is_alive:
                if self.in_group and self.dice.random() < 0.05:
                    self.rebalance()
                yield
                if self.in_transactions:
                    is_alive = yield from self.transact(number, process, positions)
                elif self.dice.random() < 0.5:
                    is_alive = yield from self.send(process)
                else:
                    is_alive = yield from self.poll(number, process, positions)

    def moved(self, number: int, positions: dict[int, int]) -> frozenset[int]:
        """Take what the group gave and took since last time."""
        keys = frozenset(self.rebalances[number])
        self.rebalances[number].clear()
        for key in keys:
            positions[key] = self.log.positions.get(key, 0)
        return keys

    def poll_now(self, number: int, positions: dict[int, int]) -> Poll:
        mine = [key for key in KEYS if not self.in_group or self.owners.get(key) == number]
        records = {key: self.log.read(key, positions[key]) for key in mine}
        for key, found in records.items():
            if found:
                positions[key] = found[-1][0] + 1
        return Poll({key: found for key, found in records.items() if found})

    def new_sends(self, count: int) -> list[Send]:
        sends = []
        for _ in range(count):
            self.values += 1
            sends.append(Send(self.dice.choice(KEYS), self.values))
        return sends

    def append(self, send: Send, transaction: Transaction | None) -> Send:
        offset = self.log.append(send.key, send.value, transaction)
        return dataclasses.replace(send, offset=offset)

    def send(self, process: int) -> Generator[None, None, bool]:
        sends = self.new_sends(self.dice.randrange(1, 4))
        self.note(process, "invoke", "send", sends)
        yield
        outcome = self.dice.random()
        if outcome < 0.1:
            self.note(process, "fail", "send", sends)
            return True
        if outcome < 0.2:
            self.note(process, "info", "send", sends)
            if self.dice.random() < 0.5:
                yield
                for send in sends:
                    self.append(send, None)
            return False
        if len({send.key for send in sends}) == 1 < len(sends) and self.log.strikes("swap-sends"):
            done = [self.append(send, None) for send in reversed(sends)][::-1]
        else:
            done = [self.append(send, None) for send in sends]
        yield
        self.note(process, "ok", "send", done)
        return True

    def poll(
        self, number: int, process: int, positions: dict[int, int]
    ) -> Generator[None, None, bool]:
        self.note(process, "invoke", "poll")
        moved = self.moved(number, positions)
        polled = self.poll_now(number, positions)
        yield
        self.note(process, "ok", "poll", [polled], rebalanced=moved)
        if not self.in_group or self.rebalances[number]:
            return True
        commit = Commit({key: positions[key] for key in polled.records})
        self.note(process, "invoke", "commit", [commit])
        if not self.log.strikes("lose-position"):
            self.log.positions.update(commit.positions)
        yield
        self.note(process, "ok", "commit", [commit])
        self.note(process, "invoke", "committed")
        committed = Committed({key: self.log.positions.get(key) for key in KEYS})
        yield
        self.note(process, "ok", "committed", [committed])
        return True

    def transact(
        self, number: int, process: int, positions: dict[int, int]
    ) -> Generator[None, None, bool]:
        planned: list[Send | None] = [
            self.new_sends(1)[0] if self.dice.random() < 0.5 else None
            for _ in range(self.dice.randrange(1, 5))
        ]
        sends = [send for send in planned if send is not None]
        self.note(process, "invoke", "txn", sends)
        moved = self.moved(number, positions)
        before = dict(positions)
        transaction = Transaction()
        actions: list[Action] = []
        for send in planned:
            yield
            if send is None:
                actions.append(self.poll_now(number, positions))
            else:
                actions.append(self.append(send, transaction))
        keys = sorted({send.key for send in sends})
        commit = Commit({k: positions[k] for k in KEYS if positions[k] != before[k]})
        if self.in_group:
            actions.append(commit)
        is_fenced = bool(self.rebalances[number]) and self.log.fault != "no-fencing"
        self.log.fired += self.log.fault == "no-fencing"
        outcome = self.dice.random()
        if is_fenced or outcome < 0.1:
            self.log.end(transaction, "aborted", keys)
            if self.in_group and self.log.fault == "keep-aborted-positions":
                self.log.fired += bool(commit.positions)
                self.log.positions.update(commit.positions)
            positions.update(before)
            self.note(process, "fail", "txn", actions, rebalanced=moved)
            self.ask_committed(process)
            return True
        is_known = outcome > 0.2
        if is_known or self.dice.random() < 0.5:
            self.log.end(transaction, "committed", keys)
            if self.in_group:
                self.log.positions.update(commit.positions)
        else:
            self.log.end(transaction, "aborted", keys)
        type_: Type = "ok" if is_known else "info"
        try:
            yield
        except GeneratorExit:
            # The run ends here, as a client is killed: its knowledge is recorded.
            self.note(process, "info", "txn", actions, rebalanced=moved)
            raise
        self.note(process, type_, "txn", actions, rebalanced=moved)
        return is_known

    def ask_committed(self, process: int) -> None:
        if self.in_group:
            self.note(process, "invoke", "committed")
            committed = Committed({key: self.log.positions.get(key) for key in KEYS})
            self.note(process, "ok", "committed", [committed])

    def read_everything(self) -> None:
        self.log.fault = None if self.log.fault != "show-aborted" else self.log.fault
        process = self.new_process()
        positions = dict.fromkeys(KEYS, 0)
        self.ask_committed(process)
        self.in_group = False
        while True:
            self.note(process, "invoke", "poll")
            polled = self.poll_now(0, positions)
            self.note(process, "ok", "poll", [polled])
            if not polled.records:
                return
