"""A model of replication: one partition, three brokers, a store with watches; all faults by a seed.

The decisions are the production functions of `cluster.elections`. The rest is a model of the rules
that brokers follow: registration, fetching, truncation, high watermark, changes of the in-sync
replicas. Watches are late, answers get lost, writes arrive late, sessions of living brokers expire,
crashes lose the tail that was not synced, disks are wiped, `min.insync.replicas` changes.

After every step: an acknowledged record is on the disk of each valid member of the ISR and ELR; a
clean leader has every acknowledged record; no offset is acknowledged twice; no follower cuts below
its high watermark. `Rule` names the rules of the protocol: a model without one of them must fail.

It is NOT the brokers' code: no bytes, no files, no connections.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal

from penstock.cluster import elections
from penstock.cluster.elections import NO_LEADER, Members
from penstock.cluster.image import PartitionImage, Replica

PARTITION: Final = "partition"
RECORDS_MAX: Final = 60
BROKERS: Final = (1, 2, 3)

Record = tuple[int, int]
"""Leader epoch and number."""
Comparison = tuple[Literal["created", "modified"], str, int]
"""Which revision of which key must be which."""


class Rule(Enum):
    """A rule of the protocol, named by its absence."""

    REPORT_SYNCED = "a follower reports records that are not synced"
    NODES = "a wiped disk keeps its place"
    CUT_BY_EPOCH = "a follower cuts to its high watermark"
    FREEZE = "the high watermark moves below min_isr"
    SIZE_MIN = "a change of the ISR under way counts as landed for min_isr"
    ELR_EMPTIED = "the ELR is kept with enough replicas in sync"
    EPOCH_START = "a follower joins before it has the records of earlier epochs"
    ELR_EMPTIED_BY_MIN = "the ELR is kept at another min_isr"
    MAXIMAL_ISR = "a change of the ISR under way counts as landed for the high watermark"
    RESTART_RAISES_EPOCH = "a leader leads on after its restart"
    OWN_ANSWER = "a follower takes answers to earlier requests"


class ViolationError(AssertionError):
    """The model broke a promise."""


@dataclass
class Store:
    """Keys with revisions, and the history that watches read."""

    revision: int = 0
    values: dict[str, object] = field(default_factory=dict)
    created: dict[str, int] = field(default_factory=dict)
    modified: dict[str, int] = field(default_factory=dict)
    history: list[tuple[int, str, object, int]] = field(default_factory=list)

    def write(self, compares: list[Comparison], **puts: object) -> bool:
        for target, key, revision in compares:
            known = self.created if target == "created" else self.modified
            if known.get(key, 0) != revision:
                return False
        self.revision += 1
        for key, value in puts.items():
            if value is None:
                self.values.pop(key, None)
                self.created.pop(key, None)
                self.modified.pop(key, None)
            else:
                self.created.setdefault(key, self.revision)
                self.values[key], self.modified[key] = value, self.revision
            self.history.append((self.revision, key, value, self.created.get(key, 0)))
        return True


@dataclass
class View:
    """The metadata as one watcher knows it."""

    position: int = 0
    state: PartitionImage | None = None
    epochs: dict[int, int] = field(default_factory=dict)
    registrations: dict[int, int] = field(default_factory=dict)
    """Last revision of each broker's key."""
    nodes: dict[int, int] = field(default_factory=dict)
    lost: dict[int, int] = field(default_factory=dict)
    """Last revision at which each broker's key was deleted."""

    def follow(self, store: Store, *, to_end: bool) -> bool:
        has_moved = False
        while self.position < len(store.history):
            revision = store.history[self.position][0]
            while (
                self.position < len(store.history) and store.history[self.position][0] == revision
            ):
                self._take(*store.history[self.position])
                self.position += 1
            has_moved = True
            if not to_end:
                break
        return has_moved

    def _take(self, revision: int, key: str, value: object, created: int) -> None:
        if isinstance(value, PartitionImage):
            self.state = value._replace(partition_epoch=revision)
        elif key.startswith("node"):
            self.nodes[int(key[4:])] = revision
        elif value is None:
            self.epochs.pop(int(key[6:]), None)
            self.lost[int(key[6:])] = revision
        else:
            self.epochs[int(key[6:])] = created
            self.registrations[int(key[6:])] = revision


@dataclass
class Change:
    """A change of the ISR that is under way."""

    number: int
    after: PartitionImage


@dataclass
class Broker:
    """One broker: its disk, and its state of one registration."""

    id: int
    log: list[Record] = field(default_factory=list)
    synced: int = 0
    high_watermark: int = 0
    is_alive: bool = False
    is_wiped: bool = False

    def register(self, epoch: int) -> None:
        self.is_alive = True
        self.epoch = epoch
        self.view = View()
        self.role: Literal["leader", "follower", "idle"] = "idle"
        self.leader_epoch = -1
        self.offsets: dict[int, int] = {}
        """Synced offset of each follower in this epoch."""
        self.follower_epochs: dict[int, int] = {}
        self.change: Change | None = None
        self.epoch_start = 0
        self.maximal_isr: set[int] = set()
        self.size_min = 0
        self.state: PartitionImage | None = None
        self.fetch = 0

    @property
    def revision(self) -> int:
        return 0 if self.state is None else self.state.partition_epoch

    def settle_isr(self) -> None:
        """Use the stored ISR: no change is under way."""
        assert self.state is not None
        self.maximal_isr, self.size_min = set(self.state.isr), len(self.state.isr)


@dataclass
class Message:
    """A message between brokers, or of a leader and the store."""

    kind: Literal["fetch", "answer", "change", "changed"]
    sender: int
    receiver: int
    body: dict[str, Any]


def end_of_epoch(log: list[Record], epoch: int) -> tuple[int, int]:
    """Return the largest epoch not above `epoch`, and its end offset."""
    found = max((one for one, _ in log if one <= epoch), default=-1)
    return found, sum(1 for one, _ in log if one <= found)


class Model:
    """One partition on three brokers."""

    def __init__(self, seed: int, removed: Rule | None = None, min_isr: int = 2) -> None:
        self.random = random.Random(seed)
        self.removed = removed
        self.store = Store()
        self.brokers = {one: Broker(one) for one in BROKERS}
        self.network: list[Message] = []
        self.acknowledged: dict[int, Record] = {}
        self.counts: Counter[str] = Counter()
        self._controller = View()
        self._record = self._number = 0
        for broker in self.brokers.values():
            self._register(broker, is_new=True)
        epochs = tuple(self.store.created[f"broker{one}"] for one in BROKERS)
        first = PartitionImage(
            BROKERS, 1, 0, BROKERS, 0, broker_epoch=epochs[0], isr_epochs=epochs, min_isr=min_isr
        )
        self.store.write([], partition=first)

    def has(self, rule: Rule) -> bool:
        return self.removed is not rule

    @property
    def stored(self) -> PartitionImage:
        state = self.store.values[PARTITION]
        assert isinstance(state, PartitionImage)
        return state._replace(partition_epoch=self.store.modified[PARTITION])

    # --- Sessions and disks ---

    def _register(self, broker: Broker, *, is_new: bool = False) -> None:
        key = f"broker{broker.id}"
        if key in self.store.values:
            self.store.write([], **{key: None})
        puts = {key: "registered"}
        if is_new:
            puts[f"node{broker.id}"] = "directory"
        assert self.store.write([("created", key, 0)], **puts)
        broker.register(self.store.revision)

    def crash(self, broker: Broker) -> None:
        if not broker.is_alive:
            return
        broker.is_alive = False
        self.counts["crash"] += 1
        if self.random.random() < 0.6:
            broker.log = broker.log[: self.random.randint(broker.synced, len(broker.log))]
        if self.random.random() < 0.5:
            # The checkpoint of the high watermark is old.
            broker.high_watermark = self.random.randint(0, broker.high_watermark)
        self.network = [m for m in self.network if broker.id not in (m.sender, m.receiver)]

    def expire(self, broker: Broker) -> None:
        """End the session; the broker may live on."""
        if f"broker{broker.id}" in self.store.values:
            self.store.write([], **{f"broker{broker.id}": None})
            self.counts["expire"] += 1

    def restart(self, broker: Broker) -> None:
        if broker.is_alive:
            return
        broker.synced = len(broker.log)
        self._register(broker, is_new=broker.is_wiped and self.has(Rule.NODES))
        broker.is_wiped = False
        self.counts["restart"] += 1

    def wipe(self, broker: Broker) -> None:
        """Lose the disk of a stopped broker, if another valid member keeps everything."""
        if broker.is_alive:
            return
        for other in (*self.stored.in_sync, *self.stored.elr):
            holder = self.brokers[other.broker_id]
            is_valid = other.epoch >= self.store.modified[f"node{other.broker_id}"]
            if holder is broker or not is_valid or holder.is_wiped:
                continue
            if all(holder.log[i : i + 1] == [one] for i, one in self.acknowledged.items()):
                broker.log, broker.synced, broker.high_watermark = [], 0, 0
                broker.is_wiped = True
                self.counts["wipe"] += 1
                return

    # --- Following the metadata ---

    def take(self, broker: Broker) -> None:
        if not broker.is_alive:
            return
        if not broker.view.follow(self.store, to_end=self.random.random() < 0.5):
            return
        state = broker.view.state
        if state is None:
            return
        if broker.view.lost.get(broker.id, 0) > broker.epoch:
            # Its session has ended: it registers again, with its log.
            self._register(broker)
            self.counts["register again"] += 1
        elif state.partition_epoch > broker.revision:
            self._adopt(broker, state)

    def _adopt(self, broker: Broker, state: PartitionImage) -> None:
        broker.state = state
        if (state.leader, state.broker_epoch) == (broker.id, broker.epoch):
            if broker.role != "leader" or broker.leader_epoch != state.leader_epoch:
                self._lead(broker, state)
            # A newer state has decided on a change that was under way.
            broker.change = None
            broker.settle_isr()
            return
        if broker.leader_epoch != state.leader_epoch or broker.role != "follower":
            has_leader = state.leader not in (NO_LEADER, broker.id)
            broker.role = "follower" if has_leader else "idle"
            broker.leader_epoch = state.leader_epoch
            broker.offsets, broker.change = {}, None
        if not self.has(Rule.CUT_BY_EPOCH) and broker.role == "follower":
            broker.log = broker.log[: broker.high_watermark]
            broker.synced = min(broker.synced, len(broker.log))

    def _lead(self, broker: Broker, state: PartitionImage) -> None:
        if state == self.stored:
            self._check_leader(broker, state)
        broker.role, broker.leader_epoch = "leader", state.leader_epoch
        broker.offsets, broker.follower_epochs, broker.change = {}, {}, None
        broker.epoch_start = len(broker.log)
        self.counts["lead"] += 1

    # --- Records ---

    def produce(self, broker: Broker) -> None:
        state = broker.state
        if not broker.is_alive or broker.role != "leader" or state is None:
            return
        if len(broker.log) < RECORDS_MAX and broker.size_min >= state.min_isr:
            self._record += 1
            broker.log.append((broker.leader_epoch, self._record))

    def sync(self, broker: Broker) -> None:
        if broker.is_alive:
            broker.synced = len(broker.log)
            self._move_high_watermark(broker)

    def _move_high_watermark(self, broker: Broker) -> None:
        if broker.role != "leader":
            return
        assert broker.state is not None
        members, size = broker.maximal_isr, broker.size_min
        if broker.change is not None:
            after = broker.change.after
            members = members if self.has(Rule.MAXIMAL_ISR) else set(after.isr)
            size = size if self.has(Rule.SIZE_MIN) else max(size, len(after.isr))
        offsets = [broker.offsets.get(one, -1) for one in members if one != broker.id]
        reached = min([broker.synced, *offsets])
        is_frozen = size < broker.state.min_isr and self.has(Rule.FREEZE)
        if reached <= broker.high_watermark or is_frozen:
            return
        broker.high_watermark = reached
        for offset, record in enumerate(broker.log[:reached]):
            known = self.acknowledged.setdefault(offset, record)
            if known != record:
                raise ViolationError(f"{known} and {record} are acknowledged at {offset}")

    def fetch(self, broker: Broker) -> None:
        if not broker.is_alive or broker.role != "follower":
            return
        if broker.synced < len(broker.log) and self.has(Rule.REPORT_SYNCED):
            return
        if any(one.kind == "fetch" and one.sender == broker.id for one in self.network):
            return
        assert broker.state is not None
        self._number += 1
        broker.fetch = self._number
        request = {
            "number": self._number,
            "epoch": broker.epoch,
            "leader_epoch": broker.leader_epoch,
            "offset": len(broker.log),
            "last_epoch": broker.log[-1][0] if broker.log else -1,
        }
        self.network.append(Message("fetch", broker.id, broker.state.leader, request))

    def deliver(self, message: Message) -> None:
        receiver = self.brokers[message.receiver]
        if receiver.is_alive:
            getattr(self, f"_on_{message.kind}")(receiver, message.sender, message.body)

    def _on_fetch(self, leader: Broker, sender: int, asked: dict[str, Any]) -> None:
        if leader.role != "leader" or asked["leader_epoch"] != leader.leader_epoch:
            return
        known = leader.view.epochs.get(sender)
        if known is not None and asked["epoch"] < known:
            return
        offset, last = asked["offset"], asked["last_epoch"]
        answer: dict[str, Any] = {**asked, "records": [], "diverging": None}
        if self.has(Rule.CUT_BY_EPOCH):
            epoch, end = end_of_epoch(leader.log, last)
            if offset > len(leader.log) or (last >= 0 and (epoch < last or end < offset)):
                answer["diverging"] = (epoch, end)
        if answer["diverging"] is None:
            if known == asked["epoch"]:
                leader.offsets[sender] = offset
                leader.follower_epochs[sender] = asked["epoch"]
                self._move_high_watermark(leader)
            answer["records"] = leader.log[offset : offset + self.random.randint(1, 4)]
        answer["high_watermark"] = leader.high_watermark
        self.network.append(Message("answer", leader.id, sender, answer))

    def _on_answer(self, follower: Broker, _sender: int, answer: dict[str, Any]) -> None:
        if follower.role != "follower" or follower.leader_epoch != answer["leader_epoch"]:
            return
        if answer["offset"] != len(follower.log):
            return
        if answer["number"] != follower.fetch and self.has(Rule.OWN_ANSWER):
            return
        if answer["diverging"] is None:
            follower.log = follower.log + answer["records"]
            reached = min(answer["high_watermark"], len(follower.log))
            follower.high_watermark = max(follower.high_watermark, reached)
            return
        epoch, end = answer["diverging"]
        own_epoch, own_end = end_of_epoch(follower.log, epoch)
        cut = min(own_end, len(follower.log), end if own_epoch == epoch else own_end)
        if cut < follower.high_watermark:
            raise ViolationError(
                f"broker {follower.id} cuts to {cut}, below its high watermark "
                f"{follower.high_watermark}"
            )
        follower.log = follower.log[:cut]
        follower.synced = min(follower.synced, cut)

    # --- Changes of the in-sync replicas by the leader ---

    def _leading(self, broker: Broker) -> PartitionImage | None:
        if broker.is_alive and broker.role == "leader" and broker.change is None:
            return broker.state
        return None

    def shrink(self, broker: Broker) -> None:
        state = self._leading(broker)
        if state is None:
            return
        slow = [
            one
            for one in state.isr
            if one != broker.id and broker.offsets.get(one, -1) < len(broker.log)
        ]
        if slow:
            self._send(broker, elections.shrunk(state, self.random.choice(slow)))

    def expand(self, broker: Broker) -> None:
        state = self._leading(broker)
        if state is None:
            return
        for one in state.replicas:
            now = broker.view.epochs.get(one)
            is_known = now is not None and broker.follower_epochs.get(one) == now
            if one == broker.id or not is_known or Replica(one, now or 0) in state.in_sync:
                continue
            offset = broker.offsets.get(one, -1)
            start = broker.epoch_start if self.has(Rule.EPOCH_START) else 0
            if offset >= max(broker.high_watermark, start):
                after = elections.joined(state, Replica(one, now or 0))
                if not self.has(Rule.ELR_EMPTIED):
                    after = after._replace(elr=tuple(e for e in state.elr if e.broker_id != one))
                self._send(broker, after, added=one)
                return

    def change_min_isr(self, broker: Broker) -> None:
        state = self._leading(broker)
        if state is not None:
            after = elections.with_min_isr(state, 3 - state.min_isr)
            kept = after.elr if self.has(Rule.ELR_EMPTIED_BY_MIN) else state.elr
            self._send(broker, after._replace(elr=kept))

    def _send(self, broker: Broker, after: PartitionImage, added: int | None = None) -> None:
        assert broker.state is not None
        compares: list[Comparison] = [
            ("modified", PARTITION, broker.revision),
            ("created", f"broker{broker.id}", broker.epoch),
        ]
        if added is not None:
            compares += [
                ("modified", f"broker{added}", broker.view.registrations.get(added, 0)),
                ("modified", f"node{added}", broker.view.nodes.get(added, 0)),
            ]
        self._number += 1
        broker.change = Change(self._number, after)
        broker.maximal_isr = {*broker.state.isr, *after.isr}
        broker.size_min = min(len(broker.state.isr), len(after.isr))
        body = {"number": self._number, "compares": compares, "after": after}
        self.network.append(Message("change", broker.id, broker.id, body))

    def _on_change(self, broker: Broker, _sender: int, body: dict[str, Any]) -> None:
        has_landed = self.store.write(body["compares"], partition=body["after"])
        self.counts["isr change" if has_landed else "isr change refused"] += 1
        if self.random.random() < 0.8:
            answer = {"number": body["number"], "stored": self.stored}
            self.network.append(Message("changed", broker.id, broker.id, answer))

    def _on_changed(self, broker: Broker, _sender: int, body: dict[str, Any]) -> None:
        if broker.change is not None and broker.change.number == body["number"]:
            self._decided(broker, body["stored"])
            self._move_high_watermark(broker)

    def read_again(self, broker: Broker) -> None:
        """The answer to a change was lost: read the state of the store."""
        change = broker.change
        if not broker.is_alive or broker.role != "leader" or change is None:
            return
        is_under_way = any(
            one.kind == "change" and one.body["number"] == change.number for one in self.network
        )
        if not is_under_way:
            self._decided(broker, self.stored)

    def _decided(self, broker: Broker, stored: PartitionImage) -> None:
        broker.change = None
        if stored.partition_epoch > broker.revision:
            self._adopt(broker, stored)
        elif broker.role == "leader":
            broker.settle_isr()

    # --- The controller ---

    def control(self) -> None:
        view = self._controller
        view.follow(self.store, to_end=self.random.random() < 0.7)
        state = view.state
        if state is None:
            return
        nodes = view.nodes if self.has(Rule.NODES) else dict.fromkeys(BROKERS, 0)
        members = Members(view.epochs, nodes, frozenset(view.epochs))
        after = elections.reconciled(state, members)
        if after is None:
            return
        is_same_leader = after.leader == state.leader
        if is_same_leader and not self.has(Rule.RESTART_RAISES_EPOCH):
            after = after._replace(leader_epoch=state.leader_epoch)
        compares: list[Comparison] = [("modified", PARTITION, state.partition_epoch)]
        if after.leader != NO_LEADER and after.broker_epoch != state.broker_epoch:
            compares += [
                ("created", f"broker{after.leader}", after.broker_epoch),
                ("modified", f"node{after.leader}", view.nodes[after.leader]),
            ]
            self.counts["election"] += 1
        self.store.write(compares, partition=after)

    # --- Promises ---

    def _check_leader(self, broker: Broker, state: PartitionImage) -> None:
        for offset, record in self.acknowledged.items():
            if broker.log[offset : offset + 1] != [record]:
                raise ViolationError(
                    f"leader {broker.id} of epoch {state.leader_epoch} lacks {record} at {offset}"
                )

    def check(self) -> None:
        for kind in ("in_sync", "elr"):
            for entry in getattr(self.stored, kind):
                holder = self.brokers[entry.broker_id]
                since = self.store.modified[f"node{entry.broker_id}"]
                if entry.epoch < since or holder.is_wiped:
                    continue
                for offset, record in self.acknowledged.items():
                    is_there = offset < holder.synced and holder.log[offset] == record
                    if not is_there:
                        raise ViolationError(
                            f"{record} at {offset} is not on the disk of broker {holder.id}, "
                            f"which is in {kind}"
                        )

    def run(self, steps: int) -> None:
        """Take random steps; raise `ViolationError` if a promise is broken."""
        names = list(_WEIGHTS)
        choices = self.random.choices(names, list(_WEIGHTS.values()), k=steps)
        for name in choices:
            broker = self.brokers[self.random.choice(BROKERS)]
            if name == "control":
                self.control()
            elif name in ("deliver", "drop"):
                if self.network:
                    place = self.random.randrange(len(self.network))
                    message = self.network.pop(place)
                    if name == "deliver":
                        self.deliver(message)
            else:
                getattr(self, name)(broker)
            if self.random.random() < 0.05:
                self.read_again(broker)
            self.check()
        self.counts["acknowledged"] = len(self.acknowledged)


_WEIGHTS: Final = {
    "take": 6.0,
    "deliver": 8.0,
    "produce": 6.0,
    "sync": 6.0,
    "fetch": 8.0,
    "control": 3.0,
    "shrink": 1.0,
    "expand": 3.0,
    "crash": 0.35,
    "restart": 1.2,
    "expire": 0.25,
    "wipe": 0.12,
    "change_min_isr": 0.1,
    "drop": 0.4,
}
"""How often each step is taken, relative to the others."""
