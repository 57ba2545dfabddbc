"""Simulated clients: producers and consumers on `penstock.client`, each on its own machine.

Kinds of producers: plain with acks=all, one attempt for each record; idempotent with acks=all,
which repeats a batch until its outcome is known; plain with acks=1. An operation is `ok` when the
broker acknowledged it, `fail` when the request certainly had no effect, else `info`. Records with
acks=1 are `info` also when they are acknowledged: a later leader may not have them.

A consumer polls from its own positions and keeps them. It commits nothing: `group_clients` has the
members of groups, `transaction_clients` the transactional producers.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from penstock.client import calls
from penstock.client.async_cluster import AsyncCluster
from penstock.client.calls import FetchBounds, FetchPlace, ProducerIdentity
from penstock.client.coordinators import Coordinator, CoordinatorKind, find
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call
from penstock.client.transport.connection import AsyncConnection, connect
from penstock.core.errors import BrokerUnreachableError, ClientError, PeerError, PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.records.builder import build_batch
from penstock.records.record import Record
from tests.checker.history import Poll, Send
from tests.cluster_sim.history import Recorder
from tests.cluster_sim.loop import SimulatedLoop
from tests.cluster_sim.network import SimulatedNetwork
from tests.cluster_sim.record_reading import ReadRecords, read_values

Result = TypeVar("Result")

ACKS_ALL: Final = -1
ANSWER_SECONDS: Final = 4.0
PRODUCE_TIMEOUT_MS: Final = 3_000
SEND_SECONDS_MAX: Final = 12.0
"""An idempotent producer gives up a batch after this time: its outcome is unknown."""
BOUNDS: Final = FetchBounds(wait_ms_max=300, bytes_min=1, bytes_max=1 << 20)

NOT_EXECUTED: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Codes of a batch that was certainly not appended."""


class SimulatedClient:
    """One client process with its connections."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        network: SimulatedNetwork,
        bootstrap: Sequence[Address],
        keys: Mapping[int, TopicPartition],
        recorder: Recorder,
        seed: int,
    ) -> None:
        self.name = name
        self.loop = loop
        self.machine = loop.add_machine(name)
        network.place(self.machine, name)
        self.keys = keys
        self.recorder = recorder
        self.random = random.Random(f"{name} {seed}")
        self.is_over = False
        self.process = recorder.new_process()
        self._bootstrap = bootstrap
        self.cluster = self._open()
        self._coordinators: dict[tuple[CoordinatorKind, str], Coordinator] = {}

    def _open(self) -> AsyncCluster:
        async def open_connection(address: Address) -> AsyncConnection:
            return await connect(address, timeout_seconds=ANSWER_SECONDS, client_id=self.name)

        return AsyncCluster(self._bootstrap, open_connection, timeout_seconds=ANSWER_SECONDS)

    async def ask(self, kind: CoordinatorKind, name: str, call: Call[Result]) -> Result:
        """Send a call to the coordinator of a name once; after an error it is found again."""
        try:
            coordinator = self._coordinators.get((kind, name))
            if coordinator is None:
                coordinator = await self.cluster.anywhere(find(kind, name))
                self._coordinators[kind, name] = coordinator
            return await self.cluster.at(coordinator.address, call)
        except PenstockError:
            self._coordinators.pop((kind, name), None)
            # The next search goes to another broker.
            self.cluster._view.forget_topics()
            raise

    async def pause(self, seconds_max: float) -> None:
        """Wait a random time."""
        await asyncio.sleep(self.random.random() * seconds_max)


class Producer(SimulatedClient):
    """Sends records until it is over."""

    acks = ACKS_ALL
    is_idempotent = False
    pause_seconds_max = 0.25

    async def run(self) -> None:
        """Send one record after the other."""
        identity: ProducerIdentity | None = None
        sequences: dict[int, int] = {}
        while not self.is_over:
            await self.pause(self.pause_seconds_max)
            if self.is_idempotent and identity is None:
                identity, sequences = await self._identity(), {}
                if identity is None:
                    continue
            key = self.random.choice(list(self.keys))
            send = Send(key, self.recorder.new_value())
            batch = self._batch(send.value, identity, sequences.get(key, 0))
            self.recorder.add(self.process, "invoke", "send", [send])
            if self.is_idempotent:
                is_known = await self._send_until_known(send, batch)
                sequences[key] = sequences.get(key, 0) + 1
                if not is_known:
                    identity = None
                    self.process = self.recorder.new_process()
            elif not await self._send_once(send, batch):
                self.process = self.recorder.new_process()

    def _batch(self, value: int, identity: ProducerIdentity | None, sequence: int) -> bytearray:
        record = Record(value=b"%d" % value, timestamp_ms=1_700_000_000_000)
        if identity is None:
            return build_batch([record])
        return build_batch(
            [record],
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=sequence,
        )

    async def _identity(self) -> ProducerIdentity | None:
        try:
            return await self.cluster.anywhere(calls.start_producer())
        except PenstockError:
            self.cluster._view.forget_topics()
            return None

    async def _send_once(self, send: Send, batch: bytearray) -> bool:
        """Send a batch; return whether its outcome is known."""
        code = await self._attempt(send.key, batch)
        if isinstance(code, int):
            done = Send(send.key, send.value, code)
            self.recorder.add(
                self.process, "ok" if self.acks == ACKS_ALL else "info", "send", [done]
            )
            return self.acks == ACKS_ALL
        kind = "fail" if code in ("unsent", "refused") else "info"
        self.recorder.add(self.process, "fail" if kind == "fail" else "info", "send", [send])
        return kind == "fail"

    async def _send_until_known(self, send: Send, batch: bytearray) -> bool:
        deadline = self.loop.time() + SEND_SECONDS_MAX
        while self.loop.time() < deadline:
            outcome = await self._attempt(send.key, batch)
            if isinstance(outcome, int):
                done = Send(send.key, send.value, outcome)
                self.recorder.add(self.process, "ok", "send", [done])
                return True
            if outcome == "final":
                break
            await self.pause(0.4)
        self.recorder.add(self.process, "info", "send", [send])
        return False

    async def _attempt(self, key: int, batch: bytearray) -> int | str:
        """Send a batch once; return its offset, or the kind of failure."""
        at = self.keys[key]
        try:
            leader = (await self.cluster.leaders([at]))[at]
        except PenstockError:
            self.cluster._view.forget_topics()
            return "unsent"
        call = calls.send_batches({at: batch}, acks=self.acks, timeout_ms=PRODUCE_TIMEOUT_MS)
        try:
            answer = (await self.cluster.at(leader.address, call))[at]
        except BrokerUnreachableError:
            self.cluster._view.forget_topics()
            return "unsent"
        except (ClientError, PeerError):
            self.cluster._view.forget_topics()
            return "unknown"
        code = ErrorCode(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            # A known duplicate may have lost its offset.
            return answer.base_offset if answer.base_offset >= 0 else "final"
        self.cluster._view.forget_topics()
        if code in NOT_EXECUTED:
            return "refused"
        return "unknown" if code.retriable else "final"


class IdempotentProducer(Producer):
    """Repeats each batch until its outcome is known."""

    is_idempotent = True


class LeaderOnlyProducer(Producer):
    """Sends with acks=1."""

    acks = 1
    pause_seconds_max = 0.6


class Consumer(SimulatedClient):
    """Polls some keys from their beginning until it is over."""

    is_read_committed = False

    async def run(self) -> None:
        """Poll until the end."""
        wanted = sorted(self.random.sample(list(self.keys), self.random.randint(1, len(self.keys))))
        positions = await self.begin(wanted)
        while not self.is_over:
            await self.pause(0.3)
            await self.poll(positions)

    async def begin(self, keys: Sequence[int]) -> dict[int, int]:
        """Assign keys from their beginning."""
        self.recorder.add(self.process, "invoke", "assign", keys=keys, is_from_beginning=False)
        self.recorder.add(self.process, "ok", "assign", keys=keys, is_from_beginning=False)
        return dict.fromkeys(keys, 0)

    async def poll(self, positions: dict[int, int]) -> None:
        """Read each key once from its position."""
        self.recorder.add(self.process, "invoke", "poll")
        found: dict[int, list[tuple[int, int]]] = {}
        for key, position in tuple(positions.items()):
            read = await self.fetch(key, position)
            if read is None:
                continue
            positions[key] = read.next_offset
            if read.records:
                found[key] = read.records
        self.recorder.add(self.process, "ok", "poll", [Poll(found)])

    async def fetch(self, key: int, offset: int) -> ReadRecords | None:
        """Return records starting at an offset; None after an error."""
        at = self.keys[key]
        try:
            leader = (await self.cluster.leaders([at]))[at]
            place = FetchPlace(at, None, offset)
            call = calls.fetch_from(place, BOUNDS, is_read_committed=self.is_read_committed)
            answer = await self.cluster.at(leader.address, call)
        except PenstockError:
            self.cluster._view.forget_topics()
            return None
        if answer.error_code != ErrorCode.NONE:
            self.cluster._view.forget_topics()
            return None
        aborted = answer.aborted_transactions if self.is_read_committed else None
        return read_values(bytes(answer.records or b""), offset, aborted)


class CommittedConsumer(Consumer):
    """Polls committed records only."""

    is_read_committed = True


class FinalReader(CommittedConsumer):
    """Reads everything from the beginning, after the faults have ended."""

    async def read_to(self, ends: Mapping[int, int]) -> bool:
        """Read all keys up to these offsets; return whether that was possible."""
        keys = sorted(self.keys)
        self.recorder.add(self.process, "invoke", "assign", keys=keys, is_from_beginning=True)
        self.recorder.add(self.process, "ok", "assign", keys=keys, is_from_beginning=True)
        positions = dict.fromkeys(keys, 0)
        for _ in range(100):
            await self.poll(positions)
            if all(positions[key] > end for key, end in ends.items()):
                return True
            await self.pause(0.2)
        return False
