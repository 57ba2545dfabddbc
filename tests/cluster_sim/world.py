"""`World`: brokers, clients, faults and invariants of one run, all from one seed.

Life of a run: the brokers start; a client creates the topics; clients work while faults happen;
the faults end and every broker is started; the cluster settles; readers read everything; the
history is checked. `run.run_seed` drives it.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from penstock.client.calls import NewTopic
from penstock.client.transport.addresses import Address
from penstock.cluster.keys import Keys
from penstock.core.errors import PenstockError
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from tests.cluster_sim.brokers import PORT, SimulatedBroker
from tests.cluster_sim.clients import (
    CommittedConsumer,
    Consumer,
    FinalReader,
    IdempotentProducer,
    LeaderOnlyProducer,
    Producer,
    SimulatedClient,
)
from tests.cluster_sim.fault_profiles import Plan
from tests.cluster_sim.group_clients import GROUP, GroupMember, read_positions
from tests.cluster_sim.history import Recorder
from tests.cluster_sim.invariants import Invariants
from tests.cluster_sim.loop import Machine, SimulatedLoop
from tests.cluster_sim.nemesis import MIN_ISR, TOPIC, Nemesis
from tests.cluster_sim.network import SimulatedNetwork
from tests.cluster_sim.operators import Operator
from tests.cluster_sim.store import StoreNetwork
from tests.cluster_sim.transaction_clients import COPIER_GROUP, Copier, TransactionalProducer
from tests.histories.recorder import highest_offsets

SETTLE_SECONDS_MAX: Final = 60.0
START_SECONDS_MAX: Final = 20.0
LEDGER: Final = "ledger"
"""The topic of transactions."""
LEDGER_PARTITIONS: Final = 2

Client = TypeVar("Client", bound=SimulatedClient)
Working = Producer | Consumer | TransactionalProducer


class World:
    """One run."""

    def __init__(self, seed: int, loop: SimulatedLoop, plan: Plan) -> None:
        self.plan = plan
        self.loop = loop
        self.network = SimulatedNetwork(loop, seed)
        self.stores = StoreNetwork(loop, seed)
        self.brokers = {
            number: SimulatedBroker(
                number, loop, self.network, self.stores, random.Random(f"disk {number} {seed}")
            )
            for number in range(1, plan.brokers + 1)
        }
        for broker in self.brokers.values():
            broker.lag_seconds = plan.lag_seconds
        self.recorder = Recorder(loop)
        self.invariants = Invariants(
            self.brokers, self.stores, has_elections=plan.replication_factor > 1
        )
        self.nemesis = Nemesis(
            seed, loop, self.brokers, self.network, self.stores, self.invariants, plan
        )
        self.history_keys: Mapping[int, TopicPartition] = {
            number: TopicPartition(TOPIC, number) for number in range(plan.partitions)
        }
        self.ledger_keys: Mapping[int, TopicPartition] = {
            plan.partitions + number: TopicPartition(LEDGER, number)
            for number in range(LEDGER_PARTITIONS if plan.has_coordinators else 0)
        }
        self.keys = {**self.history_keys, **self.ledger_keys}
        self.clients: list[SimulatedClient] = []
        self._seed = seed
        self._is_healed = False
        loop.after_turn = self._after_turn
        self.recorder.on_acknowledged = self._acknowledged

    def _after_turn(self, machine: Machine) -> None:
        broker = machine.owner
        if isinstance(broker, SimulatedBroker) and broker.machine is machine:
            self.invariants.after_turn(broker)

    def _acknowledged(self, key: int, offset: int) -> None:
        self.invariants.acknowledged(*self.keys[key], offset)

    def _client(self, kind: type[Client], name: str, keys: Mapping[int, TopicPartition]) -> Client:
        bootstrap = [Address(broker.host, PORT) for broker in self.brokers.values()]
        client = kind(name, self.loop, self.network, bootstrap, keys, self.recorder, self._seed)
        self.clients.append(client)
        return client

    # --- The phases ---

    async def run(self) -> None:
        """Live through all phases."""
        await self._start()
        work = self._start_clients()
        if self.plan.has_faults:
            self.loop.start(self.loop.world, self.nemesis.run(), "nemesis")
        for _ in range(int(self.plan.seconds)):
            await asyncio.sleep(1.0)
            self.invariants.compare_logs()
            self._check_brokers()
        for client in self.clients:
            client.is_over = True
        self.nemesis.heal()
        self._is_healed = True
        self.loop.note("healed")
        await self._settle(work)
        await self._read_everything()
        self.invariants.compare_logs()
        self._check_brokers()

    async def _start(self) -> None:
        self.stores.start()
        for broker in self.brokers.values():
            broker.start()
        await self._wait(START_SECONDS_MAX, "the brokers start", self._are_all_up)
        operator = self._client(Operator, "operator", self.keys)

        def operate(change: Callable[[Operator], Coroutine[Any, Any, None]]) -> None:
            self.loop.start(operator.machine, change(operator))

        self.nemesis.operate = operate
        await self._create(operator, TOPIC, self.plan.partitions)
        if self.plan.has_coordinators:
            await self._create(operator, LEDGER, LEDGER_PARTITIONS)

    async def _create(self, operator: Operator, name: str, partitions: int) -> None:
        settings = {MIN_ISR: str(self.plan.min_insync_replicas)}
        topic = NewTopic(name, partitions, self.plan.replication_factor, settings)
        deadline = self.loop.time() + START_SECONDS_MAX
        # A broker that does not know the others yet refuses several replicas.
        while code := await self.loop.start(operator.machine, operator.create_topic(topic)):
            self.loop.note(f"the topic is not created yet: {code!r}")
            if code is ErrorCode.TOPIC_ALREADY_EXISTS:
                break
            assert self.loop.time() < deadline, f"the topic cannot be created: {code!r}"
            await asyncio.sleep(0.5)

    def _start_clients(self) -> "list[asyncio.Task[None]]":
        kinds: list[tuple[type[Working], Mapping[int, TopicPartition]]] = [
            (kind, self.history_keys)
            for kind in (Producer, IdempotentProducer, LeaderOnlyProducer, Consumer, Consumer)
        ]
        if self.plan.has_coordinators:
            kinds[3:4] = [(GroupMember, self.history_keys), (GroupMember, self.history_keys)]
            kinds += [
                (TransactionalProducer, self.ledger_keys),
                (Copier, self.ledger_keys),
                (CommittedConsumer, self.ledger_keys),
            ]
        tasks = []
        for number, (kind, keys) in enumerate(kinds):
            client = self._client(kind, f"{kind.__name__}{number}", keys)
            tasks.append(self.loop.start(client.machine, client.run()))
        return tasks

    def _are_all_up(self) -> bool:
        return all(broker.is_up for broker in self.brokers.values())

    def _check_brokers(self) -> None:
        """Start each broker that has ended by itself, as a service manager does.

        Fail if the reason is neither an error for the operator nor the simulated disk.
        """
        for broker in self.brokers.values():
            if broker.error is not None and not isinstance(broker.error, PenstockError | OSError):
                raise broker.error
            if not broker.is_alive and (broker.error is not None or self._is_healed):
                broker.start()

    async def _wait(self, seconds: float, what: str, condition: Callable[[], bool]) -> None:
        deadline = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < deadline, f"after {seconds} s: not yet: {what}"
            await asyncio.sleep(0.1)

    async def _settle(self, work: "list[asyncio.Task[None]]") -> None:
        """Wait until all is well again: (9)."""

        def is_settled() -> bool:
            self._check_brokers()
            return self._are_all_up() and self._is_in_sync()

        await self._wait(
            SETTLE_SECONDS_MAX, "(9) every partition has a leader and a full ISR", is_settled
        )
        await asyncio.wait(work)
        for task in work:
            task.result()

    def _is_in_sync(self) -> bool:
        """Return whether each leader is registered, and each replica is in sync as it is now.

        Nothing moves any more either.
        """
        present = self.stores.shared.present
        epochs = {
            number: pair.create_revision
            for number in self.brokers
            if (pair := present.get(Keys().broker(number))) is not None
        }
        return all(
            state.broker_epoch == epochs.get(state.leader)
            and not (state.adding or state.removing)
            and {one.broker_id: one.epoch for one in state.in_sync}
            == {number: epochs.get(number) for number in state.replicas}
            for known in self.invariants.partitions.values()
            if (state := known.stored) is not None
        )

    async def _read_everything(self) -> None:
        ends = highest_offsets(self.recorder.operations)
        reader = self._client(FinalReader, "reader", self.keys)
        reading = self.loop.start(reader.machine, self._read(reader, ends))
        while not reading.done():
            await asyncio.sleep(0.5)
            self._check_brokers()
        is_read = reading.result()
        assert is_read, f"(10) the reader did not reach {ends}"

    async def _read(self, reader: FinalReader, ends: Mapping[int, int]) -> bool:
        """Read the committed positions of the groups, then all records."""
        if self.plan.has_coordinators:
            copied = dict([min(self.ledger_keys.items())])
            for group, keys in ((GROUP, self.history_keys), (COPIER_GROUP, copied)):
                await self._read_positions(reader, group, keys)
            reader.process = self.recorder.new_process()
        return await reader.read_to(ends)

    async def _read_positions(
        self, reader: FinalReader, group: str, keys: Mapping[int, TopicPartition]
    ) -> None:
        deadline = self.loop.time() + SETTLE_SECONDS_MAX
        while True:
            try:
                await read_positions(reader, group, None, keys)
                return
            except PenstockError as error:
                late = f"(9) the positions of {group} cannot be read: {error}"
                assert self.loop.time() < deadline, late
                await asyncio.sleep(0.5)
