"""`Cluster`: finds brokers, leaders and the controller, and makes calls to them until they succeed.

It starts from the bootstrap addresses and learns the rest from Metadata. What it learnt is kept
until a call fails; then it is forgotten, learnt again, and the call is repeated if `client.retries`
allows it, until the time is over. A first contact is not repeated unless it is asked for: when no
bootstrap address answers, a person is told at once, because it is most often a wrong address or no
broker at all; a job that outlives a restart of the broker asks for it.

However many topics and partitions are meant, there is one Metadata call for all that is not known,
and one call for each leader; calls to several brokers are under way at the same time.

It belongs to one thread. It is not a producer or a consumer; `topic_writer` and `topic_reader` are.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Protocol, Self, TypeVar

from penstock.client import calls
from penstock.client.calls import NewTopic
from penstock.client.cluster_view import (
    ClusterView,
    Leader,
    TopicDescription,
    check_topics,
    join_unreachable,
    present_topics,
    topic_problem,
    unknown_topic,
)
from penstock.client.offset_lookup import FoundOffset, OffsetLookUp
from penstock.client.transport.addresses import Address
from penstock.client.transport.call import Call, Connection, raise_error
from penstock.client.transport.pool import Connect, ConnectionPool, Started
from penstock.client.transport.retries import LOOKS_MAX, Pauses, may_repeat
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import (
    BrokerUnreachableError,
    ClientError,
    PenstockError,
    UnknownTopicOrPartitionError,
)
from penstock.core.types import TopicPartition
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages import describe_configs
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
        request_timeout_seconds: float | None = None,
        repeats_first_contact: bool = False,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`timeout_seconds` is for a call with all its repetitions, the other for one of them."""
        assert bootstrap
        self._bootstrap = tuple(bootstrap)
        self._connect = connect
        self._pool = ConnectionPool(self._open_connection)
        self._timeout_seconds = timeout_seconds
        self._request_timeout_seconds = request_timeout_seconds or timeout_seconds
        self._repeats_first_contact = repeats_first_contact
        self._clock: Clock = clock or SystemClock()
        self._sleep = sleep
        self._view = ClusterView()

    @property
    def clock(self) -> Clock:
        """The clock that deadlines are measured with."""
        return self._clock

    @property
    def timeout_ms(self) -> int:
        """The time a broker may take: a little less than ours, so that its answer still comes."""
        return round(self._request_timeout_seconds * 900)

    @property
    def deadline_seconds(self) -> float:
        """When a call that begins now, with all its repetitions, is given up."""
        return self._clock.monotonic() + self._timeout_seconds

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

    def describe(self, names: Iterable[str] | None) -> dict[str, TopicDescription]:
        """These topics, or all, by name, as of now, by one request; one not there is absent."""
        wanted = None if names is None else list(names)
        return self.repeat(lambda: present_topics(self._learn(wanted)), repeatable=True)

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
        return dict(self._view.brokers)

    def cluster_id(self) -> str:
        """The id that the cluster was given when it was made; empty from very old brokers."""
        if self._view.cluster_id is None:
            self.repeat(lambda: self._learn([]), repeatable=True)
        return self._view.cluster_id or ""

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

    def broker_configs(self, broker_id: int) -> describe_configs.DescribeConfigsResult:
        """The settings of a broker, which nobody else knows."""
        call = calls.describe_settings(calls.BROKER_RESOURCE, [str(broker_id)])

        def attempt() -> dict[str, describe_configs.DescribeConfigsResult]:
            return self.at(self._view.brokers[broker_id], call)

        return self.repeat(attempt, repeatable=True)[str(broker_id)]

    def _settings(
        self, resource_type: int, names: Sequence[str]
    ) -> dict[str, describe_configs.DescribeConfigsResult]:
        call = calls.describe_settings(resource_type, names)
        return self.repeat(lambda: self.anywhere(call), repeatable=True)

    def create_topic(self, topic: NewTopic) -> None:
        """Create a topic, or raise what the controller answered."""
        self._change(topic.name, calls.create([topic], self.timeout_ms), repeatable=False)

    def add_partitions(self, name: str, count: int) -> None:
        """Give a topic so many partitions, or raise what the controller answered."""
        call = calls.add_partitions(name, count, self.timeout_ms)
        self._change(name, call, repeatable=False)

    def configure_topic(self, name: str, values: Mapping[str, str | None]) -> None:
        """Set settings of a topic, or raise what was answered; None is for the default."""
        self._configure(calls.TOPIC_RESOURCE, name, values)

    def configure_group(self, name: str, values: Mapping[str, str | None]) -> None:
        """Set settings of a group, or raise what was answered; None is for the default."""
        self._configure(calls.GROUP_RESOURCE, name, values)

    def _configure(self, resource_type: int, name: str, values: Mapping[str, str | None]) -> None:
        # To set the same value twice is to set it once.
        self._change(name, calls.configure(resource_type, name, values), repeatable=True)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, or raise what the controller answered."""
        self._change(name, calls.delete([name], self.timeout_ms), repeatable=False)

    def start_producer(self) -> calls.ProducerIdentity:
        """An identity for an idempotent producer; taking two costs nothing."""
        return self.repeat(lambda: self.anywhere(calls.start_producer()), repeatable=True)

    # --- Calls by leader ---

    def find_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The first offset at or after each time; -1 where there is none."""
        found = self.look_up_offsets(timestamps, is_read_committed=False)
        return {at: one.offset for at, one in found.items()}

    def look_up_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, is_read_committed: bool
    ) -> dict[TopicPartition, FoundOffset]:
        """The first offset at or after each time, or an end of the log (`calls.LATEST_TIMESTAMP`).

        One call for each leader. For who reads committed records the log ends at its last stable
        offset.
        """
        look_up = OffsetLookUp(timestamps, is_read_committed=is_read_committed)

        def attempt() -> dict[TopicPartition, FoundOffset]:
            for answers in self.at_each(look_up.ask(self.leaders(look_up.missing()))):
                look_up.take(answers)
            return look_up.result()

        return self.repeat(attempt, repeatable=True)

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leader]:
        """Who leads these partitions, as far as is known; what is not known is learnt first."""
        wanted = list(partitions)
        unknown = self._view.unknown_topics(wanted)
        if unknown:
            check_topics(self._learn(unknown))
        return {at: self._view.leader(at) for at in wanted}

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[Address, list[TopicPartition]]:
        """The partitions grouped by the broker that leads them; learns what is not known."""
        grouped: dict[Address, list[TopicPartition]] = {}
        for at, leader in self.leaders(partitions).items():
            grouped.setdefault(leader.address, []).append(at)
        return grouped

    def forget_leaders(self) -> None:
        """What is known of topics proved wrong: it is learnt anew when it is next needed."""
        self._view.forget_topics()

    def known_topic(self, name: str) -> TopicDescription | None:
        """A topic as it was last learnt; None when it is not known or was forgotten."""
        return self._view.topic(name)

    # --- Who is asked ---

    def start(self, address: Address, call: Call[Result]) -> Started[Result]:
        """Send one call to one broker without waiting for its answer."""
        return self._pool.start(address, call)

    def at(self, address: Address, call: Call[Result]) -> Result:
        """Make one call to one broker. A connection that failed is not used again."""
        return self._pool.start(address, call).result()

    def at_each(self, asked: Mapping[Address, Call[Result]]) -> Iterator[Result]:
        """Make a call to each of these brokers, all at once; the results in their order."""
        under_way: list[Started[Result]] = []
        try:
            under_way.extend(self._pool.start(address, call) for address, call in asked.items())
            while under_way:
                yield under_way.pop(0).result()
        finally:
            for one in under_way:
                one.forget()

    def anywhere(self, call: Call[Result]) -> Result:
        """Ask the first broker that can be reached: those known, then the bootstrap addresses."""
        problems: list[BrokerUnreachableError] = []
        for address in self._view.candidates(self._bootstrap):
            try:
                return self.at(address, call)
            except BrokerUnreachableError as error:
                problems.append(error)
        raise join_unreachable(problems)

    def repeat(self, attempt: Callable[[], Result], *, repeatable: bool) -> Result:
        """Make an attempt until it succeeds, must not be repeated, or the time is over."""
        pauses = Pauses(self.deadline_seconds)
        while True:
            try:
                return attempt()
            except ClientError as error:
                is_first = not self._view.brokers and not self._repeats_first_contact
                if is_first or not may_repeat(error, repeatable=repeatable):
                    raise
                self._view.forget_topics()
                pause = pauses.next_pause(self._clock.monotonic())
                if pause is None:
                    raise
            self._sleep(pause)

    def repeat_doubting(
        self, attempt: Callable[[], Result], *doubted: type[PenstockError]
    ) -> Result:
        """As `repeat` for what only reads; these errors are believed after `LOOKS_MAX` of them.

        For what a broker that has not caught up says by mistake: that a topic is not there, or is
        another one. Each look is at another broker, one that succeeds is enough, and of errors the
        last is told.
        """
        pauses = Pauses(self.deadline_seconds)
        looks_left = LOOKS_MAX
        while True:
            try:
                return self.repeat(attempt, repeatable=True)
            except doubted:
                looks_left -= 1
                pause = pauses.next_pause(self._clock.monotonic())
                if looks_left == 0 or pause is None:
                    raise
                self.forget_leaders()
            self._sleep(pause)

    def _at_controller(self, call: Call[Result]) -> Result:
        """Ask the controller. With KRaft any broker forwards, and names itself or a random one."""
        self._learn([])
        address = self._view.controller()
        return self.anywhere(call) if address is None else self.at(address, call)

    def _open_connection(self, address: Address) -> Connection:
        try:
            return self._connect(address)
        except BrokerUnreachableError as error:
            raise self.unreachable(address, error) from error

    def unreachable(
        self, address: Address, error: BrokerUnreachableError
    ) -> BrokerUnreachableError:
        """Return the error for an address that no connection could be opened to."""
        return self._view.unreachable(address, self._bootstrap, error)

    # --- What is known ---

    def _learn(self, names: Iterable[str] | None, *, auto_create: bool = False) -> MetadataResponse:
        response = self.anywhere(calls.describe_brokers(names, auto_create=auto_create))
        self._view.learn(response)
        return response

    def _ready_topic(self, name: str, *, auto_create: bool) -> MetadataResponseTopic:
        pauses = Pauses(self._clock.monotonic() + TOPIC_APPEARANCE_SECONDS_MAX)
        while True:
            (topic,) = self._learn([name], auto_create=auto_create).topics
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not auto_create:
                raise unknown_topic(name)
            problem = topic_problem(topic)
            if problem == ErrorCode.NONE:
                return topic
            pause = pauses.next_pause(self._clock.monotonic())
            if pause is None or not problem.retriable:
                if problem == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise unknown_topic(name)
                raise_error(problem, None, name)
            else:
                self._sleep(pause)

    def _change(
        self, name: str, call: "Call[tuple[_ChangeResult, ...]]", *, repeatable: bool
    ) -> None:
        """Ask the controller for a change of one topic, or raise what it answered."""

        def attempt() -> None:
            for result in self._at_controller(call):
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise unknown_topic(name)
                raise_error(result.error_code, result.error_message, name)

        self.repeat(attempt, repeatable=repeatable)
        self._view.forget_topic(name)


class _ChangeResult(Protocol):
    """What the answers to changes of topics have in common."""

    @property
    def error_code(self) -> ErrorCode: ...

    @property
    def error_message(self) -> str | None: ...
