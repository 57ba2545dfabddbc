"""`Cluster`: finds brokers, leaders and the controller, and makes calls to them until they succeed.

It starts from the bootstrap addresses and learns the rest from Metadata. What it learnt is kept
until a call fails; then it is forgotten, learnt again, and the call is repeated if `client.retries`
allows it, until the time is over. A first contact is not repeated: when no bootstrap address
answers, the caller is told at once, because it is most often a wrong address or no broker at all.

It belongs to one thread. It is not a producer or a consumer; `topic_writer` and `topic_reader` are.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self, TypeVar

from penstock.client import calls
from penstock.client.addresses import Address
from penstock.client.calls import Connection, NewTopic
from penstock.client.pool import Connect, ConnectionPool, breaks_connection
from penstock.client.retries import Pauses, may_repeat
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import (
    BrokerUnreachableError,
    ClientError,
    PeerError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import describe_cluster, describe_configs
from penstock.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

TIMEOUT_SECONDS_DEFAULT: Final = 30.0
TOPIC_APPEARANCE_SECONDS_MAX: Final = 5.0
"""How long a topic may take to appear: Kafka answers for a new one before it has a leader."""

GROUPS_PER_REQUEST: Final = 500
"""Whose settings are asked for at once: names may be long, and a request has a bound."""

Result = TypeVar("Result")


class Cluster:
    """The brokers behind some bootstrap addresses."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        connect: Connect,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        assert bootstrap
        self._bootstrap = tuple(bootstrap)
        self._pool = ConnectionPool(connect)
        self._timeout_seconds = timeout_seconds
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._brokers: dict[int, Address] = {}
        self._controller_id = -1
        self._topics: dict[str, MetadataResponseTopic] = {}

    @property
    def clock(self) -> Clock:
        """The clock that deadlines are measured with."""
        return self._clock

    @property
    def timeout_ms(self) -> int:
        """The time a broker may take: a little less than ours, so that its answer still comes."""
        return round(self._timeout_seconds * 900)

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- Topics and brokers ---

    def all_topics(self) -> list[MetadataResponseTopic]:
        """Every topic of the cluster, by name."""
        response = self.repeat(lambda: self._learn(None), repeatable=True)
        return sorted(response.topics, key=lambda topic: topic.name or "")

    def topics(self, names: Iterable[str]) -> list[MetadataResponseTopic]:
        """These topics; one that does not exist has its error code."""
        wanted = list(names)
        return list(self.repeat(lambda: self._learn(wanted), repeatable=True).topics)

    def topic(self, name: str, *, auto_create: bool = False) -> MetadataResponseTopic:
        """One topic whose partitions all have leaders; waits for one that is being created."""
        return self.repeat(
            lambda: self._ready_topic(name, auto_create=auto_create), repeatable=True
        )

    def partitions_of(self, name: str, wanted: Sequence[int] = ()) -> list[TopicPartition]:
        """The partitions of a topic, or those of them that are wanted."""
        known = sorted(part.partition_index for part in self.topic(name).partitions)
        missing = [partition for partition in wanted if partition not in known]
        if missing:
            raise UnknownTopicOrPartitionError(
                f"{name} has no partition {missing[0]}; it has 0 to {known[-1]}."
            )
        return [TopicPartition(name, partition) for partition in (sorted(set(wanted)) or known)]

    def brokers(self) -> dict[int, Address]:
        """Every broker by its id, as of now."""
        self.repeat(lambda: self._learn([]), repeatable=True)
        return dict(self._brokers)

    def describe(self) -> describe_cluster.DescribeClusterResponse:
        """The cluster's id, controller and brokers."""
        return self.repeat(lambda: self.anywhere(calls.describe), repeatable=True)

    def topic_configs(
        self, names: Sequence[str]
    ) -> dict[str, describe_configs.DescribeConfigsResult]:
        """The settings of topics, by topic."""
        return self._settings(calls.TOPIC_RESOURCE, names)

    def group_configs(
        self, names: Sequence[str]
    ) -> dict[str, describe_configs.DescribeConfigsResult]:
        """The settings of groups, by group; a broker from before Kafka 4 has an error for each."""
        found: dict[str, describe_configs.DescribeConfigsResult] = {}
        for start in range(0, len(names), GROUPS_PER_REQUEST):
            some = names[start : start + GROUPS_PER_REQUEST]
            found |= self._settings(calls.GROUP_RESOURCE, some)
        return found

    def _settings(
        self, resource_type: int, names: Sequence[str]
    ) -> dict[str, describe_configs.DescribeConfigsResult]:
        return self.repeat(
            lambda: self.anywhere(lambda one: calls.describe_settings(one, resource_type, names)),
            repeatable=True,
        )

    def create_topic(self, topic: NewTopic) -> None:
        """Create a topic, or raise what the controller answered."""

        def attempt() -> None:
            results = self._at_controller(lambda one: calls.create(one, [topic], self.timeout_ms))
            for result in results:
                calls.raise_error(result.error_code, result.error_message, topic.name)

        self.repeat(attempt, repeatable=False)

    def add_partitions(self, name: str, count: int) -> None:
        """Give a topic so many partitions, or raise what the controller answered."""

        def attempt() -> None:
            for result in self._at_controller(
                lambda one: calls.add_partitions(one, name, count, self.timeout_ms)
            ):
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise _unknown(name)
                calls.raise_error(result.error_code, result.error_message, name)

        self.repeat(attempt, repeatable=False)
        self._topics.pop(name, None)

    def configure_topic(self, name: str, values: Mapping[str, str | None]) -> None:
        """Set settings of a topic, or raise what was answered; None is for the default."""
        self._configure(calls.TOPIC_RESOURCE, name, values)

    def configure_group(self, name: str, values: Mapping[str, str | None]) -> None:
        """Set settings of a group, or raise what was answered; None is for the default."""
        self._configure(calls.GROUP_RESOURCE, name, values)

    def _configure(self, resource_type: int, name: str, values: Mapping[str, str | None]) -> None:
        def attempt() -> None:
            for result in self._at_controller(
                lambda one: calls.configure(one, resource_type, name, values)
            ):
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise _unknown(name)
                calls.raise_error(result.error_code, result.error_message, name)

        # To set the same value twice is to set it once.
        self.repeat(attempt, repeatable=True)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, or raise what the controller answered."""

        def attempt() -> None:
            for result in self._at_controller(
                lambda one: calls.delete(one, [name], self.timeout_ms)
            ):
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise _unknown(name)
                calls.raise_error(result.error_code, result.error_message, name)

        self.repeat(attempt, repeatable=False)
        self._topics.pop(name, None)

    # --- Calls by leader ---

    def find_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after each time; -1 where there is none."""
        found: dict[TopicPartition, int] = {}

        def attempt() -> None:
            wanted = [at for at in timestamps if at not in found]
            for leader, partitions in self.by_leader(wanted).items():
                asked = {at: timestamps[at] for at in partitions}
                answers = self.at(leader, partial(calls.find_offsets, timestamps=asked))
                for at, answer in answers.items():
                    calls.raise_error(answer.error_code, None, str(at))
                    found[at] = answer.offset

        self.repeat(attempt, repeatable=True)
        return found

    def start_producer(self) -> calls.ProducerIdentity:
        """An identity for an idempotent producer; taking two costs nothing."""
        return self.repeat(lambda: self.anywhere(calls.start_producer), repeatable=True)

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[Address, list[TopicPartition]]:
        """The partitions grouped by the broker that leads them; learns what is not known."""
        leaders: dict[Address, list[TopicPartition]] = {}
        for at in partitions:
            leaders.setdefault(self._leader(at), []).append(at)
        return leaders

    def at(self, address: Address, call: Callable[[Connection], Result]) -> Result:
        """Make one call to one broker. A connection that failed is not used again."""
        try:
            return call(self._pool.get(address))
        except (ClientError, PeerError) as error:
            if breaks_connection(error):
                self._pool.discard(address)
            raise

    def anywhere(self, call: Callable[[Connection], Result]) -> Result:
        """Ask the first broker that can be reached: those known, then the bootstrap addresses."""
        candidates = dict.fromkeys([*self._brokers.values(), *self._bootstrap])
        problems = []
        for address in candidates:
            try:
                return self.at(address, call)
            except BrokerUnreachableError as error:
                problems.append(str(error))
        raise BrokerUnreachableError("; ".join(problems))

    def repeat(self, attempt: Callable[[], Result], *, repeatable: bool) -> Result:
        """Make an attempt until it succeeds, must not be repeated, or the time is over."""
        pauses = Pauses(self._clock.monotonic() + self._timeout_seconds)
        while True:
            try:
                return attempt()
            except ClientError as error:
                if not self._brokers or not may_repeat(error, repeatable=repeatable):
                    raise
                self._topics.clear()
                pause = pauses.next_pause(self._clock.monotonic())
                if pause is None:
                    raise
            self._sleep(pause)

    # --- What is known ---

    def _learn(self, names: Iterable[str] | None, *, auto_create: bool = False) -> MetadataResponse:
        wanted = None if names is None else list(names)
        response = self.anywhere(
            lambda one: calls.describe_brokers(one, wanted, auto_create=auto_create)
        )
        self._brokers = {
            broker.node_id: Address(broker.host, broker.port) for broker in response.brokers
        }
        self._controller_id = response.controller_id
        for topic in response.topics:
            if topic.name is not None and topic.error_code == ErrorCode.NONE:
                self._topics[topic.name] = topic
        return response

    def _ready_topic(self, name: str, *, auto_create: bool) -> MetadataResponseTopic:
        deadline = self._clock.monotonic() + TOPIC_APPEARANCE_SECONDS_MAX
        pauses = Pauses(deadline)
        while True:
            (topic,) = self._learn([name], auto_create=auto_create).topics
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not auto_create:
                raise _unknown(name)
            codes = [topic.error_code, *(part.error_code for part in topic.partitions)]
            problem = next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)
            if problem == ErrorCode.NONE and topic.partitions:
                return topic
            pause = pauses.next_pause(self._clock.monotonic())
            if pause is None or not problem.retriable:
                if problem == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise _unknown(name)
                calls.raise_error(problem, None, name)
                raise _unknown(name)
            self._sleep(pause)

    def _leader(self, at: TopicPartition) -> Address:
        if at.topic not in self._topics:
            self._ready_topic(at.topic, auto_create=False)
        for partition in self._topics[at.topic].partitions:
            if partition.partition_index == at.partition:
                if partition.leader_id not in self._brokers:
                    calls.raise_error(ErrorCode.LEADER_NOT_AVAILABLE, None, str(at))
                return self._brokers[partition.leader_id]
        raise _unknown(str(at))

    # --- Who is asked ---

    def _at_controller(self, call: Callable[[Connection], Result]) -> Result:
        """Ask the controller. With KRaft any broker forwards, and names itself or a random one."""
        self._learn([])
        address = self._brokers.get(self._controller_id)
        return self.anywhere(call) if address is None else self.at(address, call)


def _unknown(name: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(f"there is no topic or partition {name}")
