"""`Cluster`: finds brokers, leaders and the controller, and retries calls until they succeed.

It starts from the bootstrap addresses and fetches the rest with Metadata. It caches the metadata
until a call fails. Then it fetches the metadata again, and retries the call if `transport.retries`
allows it, until the time is over.

By default the first contact is not retried. When no bootstrap address answers, the caller gets the
error immediately, because the address is most often wrong or no broker runs. A job that outlives a
restart of the broker enables the retry.

For any number of topics and partitions there is one Metadata call for everything unknown, and one
call for each leader. Calls to several brokers are in flight at the same time.

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
"""How long a new topic may take to appear: Kafka answers a creation before the topic has a
leader."""

GROUPS_PER_REQUEST: Final = 500
"""Groups in one request for settings: names may be long, and the size of a request is bounded."""

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
        """`timeout_seconds` bounds a call with all its retries, the other timeout one request."""
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
        """Return the clock that measures deadlines."""
        return self._clock

    @property
    def timeout_ms(self) -> int:
        """Return the timeout for a broker: a little below ours, so that its answer arrives."""
        return round(self._request_timeout_seconds * 900)

    @property
    def deadline_seconds(self) -> float:
        """Return the deadline of a call that starts now, with all its retries."""
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
        """Return every topic of the cluster, sorted by name."""
        response = self.repeat(lambda: self._learn(None), repeatable=True)
        return sorted(response.topics, key=lambda topic: topic.name or "")

    def topics(self, names: Iterable[str]) -> list[MetadataResponseTopic]:
        """Return these topics; a topic that does not exist has its error code."""
        wanted = list(names)
        return list(self.repeat(lambda: self._learn(wanted), repeatable=True).topics)

    def describe(self, names: Iterable[str] | None) -> dict[str, TopicDescription]:
        """Return the current state of these or all topics by name; missing topics are absent.

        Sends one request.
        """
        wanted = None if names is None else list(names)
        return self.repeat(lambda: present_topics(self._learn(wanted)), repeatable=True)

    def topic(self, name: str, *, auto_create: bool = False) -> MetadataResponseTopic:
        """Return a topic whose partitions all have leaders; wait for a topic in creation."""
        return self.repeat(
            lambda: self._ready_topic(name, auto_create=auto_create), repeatable=True
        )

    def partitions_of(self, name: str, wanted: Sequence[int] = ()) -> list[TopicPartition]:
        """Return the partitions of a topic, or only the wanted ones."""
        known = sorted(part.partition_index for part in self.topic(name).partitions)
        missing = [partition for partition in wanted if partition not in known]
        if missing:
            raise UnknownTopicOrPartitionError(
                f"{name} has no partition {missing[0]}; it has 0 to {known[-1]}."
            )
        return [TopicPartition(name, partition) for partition in (sorted(set(wanted)) or known)]

    def brokers(self) -> dict[int, Address]:
        """Return the current brokers by id."""
        self.repeat(lambda: self._learn([]), repeatable=True)
        return dict(self._view.brokers)

    def cluster_id(self) -> str:
        """Return the id that the cluster got at its creation; empty from very old brokers."""
        if self._view.cluster_id is None:
            self.repeat(lambda: self._learn([]), repeatable=True)
        return self._view.cluster_id or ""

    def topic_configs(
        self, names: Sequence[str]
    ) -> dict[str, describe_configs.DescribeConfigsResult]:
        """Return the settings of topics, by topic."""
        return self._settings(calls.TOPIC_RESOURCE, names)

    def group_configs(
        self, names: Sequence[str]
    ) -> dict[str, describe_configs.DescribeConfigsResult]:
        """Return the settings by group; brokers before Kafka 4 return an error for each group."""
        found: dict[str, describe_configs.DescribeConfigsResult] = {}
        for start in range(0, len(names), GROUPS_PER_REQUEST):
            some = names[start : start + GROUPS_PER_REQUEST]
            found |= self._settings(calls.GROUP_RESOURCE, some)
        return found

    def broker_configs(self, broker_id: int) -> describe_configs.DescribeConfigsResult:
        """Return the settings of a broker; only that broker knows them."""
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
        """Create a topic, or raise the controller's error."""
        self._change(topic.name, calls.create([topic], self.timeout_ms), repeatable=False)

    def add_partitions(self, name: str, count: int) -> None:
        """Increase a topic to `count` partitions, or raise the controller's error."""
        call = calls.add_partitions(name, count, self.timeout_ms)
        self._change(name, call, repeatable=False)

    def configure_topic(self, name: str, values: Mapping[str, str | None]) -> None:
        """Change settings of a topic, or raise the broker's error; None resets to the default."""
        self._configure(calls.TOPIC_RESOURCE, name, values)

    def configure_group(self, name: str, values: Mapping[str, str | None]) -> None:
        """Change settings of a group, or raise the broker's error; None resets to the default."""
        self._configure(calls.GROUP_RESOURCE, name, values)

    def _configure(self, resource_type: int, name: str, values: Mapping[str, str | None]) -> None:
        # Setting the same value twice has the same effect as once.
        self._change(name, calls.configure(resource_type, name, values), repeatable=True)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, or raise the controller's error."""
        self._change(name, calls.delete([name], self.timeout_ms), repeatable=False)

    def start_producer(self) -> calls.ProducerIdentity:
        """Return an identity for an idempotent producer; a second identity costs nothing."""
        return self.repeat(lambda: self.anywhere(calls.start_producer()), repeatable=True)

    # --- Calls by leader ---

    def find_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after each time; -1 where there is none."""
        found = self.look_up_offsets(timestamps, is_read_committed=False)
        return {at: one.offset for at, one in found.items()}

    def look_up_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, is_read_committed: bool
    ) -> dict[TopicPartition, FoundOffset]:
        """Return the first offset at or after each time, or an end (`calls.LATEST_TIMESTAMP`).

        Sends one call for each leader. With `is_read_committed` the log ends at its last stable
        offset.
        """
        look_up = OffsetLookUp(timestamps, is_read_committed=is_read_committed)

        def attempt() -> dict[TopicPartition, FoundOffset]:
            for answers in self.at_each(look_up.ask(self.leaders(look_up.missing()))):
                look_up.take(answers)
            return look_up.result()

        return self.repeat(attempt, repeatable=True)

    def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Leader]:
        """Return the leaders of these partitions; fetch the metadata of unknown topics first."""
        wanted = list(partitions)
        unknown = self._view.unknown_topics(wanted)
        if unknown:
            check_topics(self._learn(unknown))
        return {at: self._view.leader(at) for at in wanted}

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[Address, list[TopicPartition]]:
        """Return the partitions grouped by leader; fetch the metadata of unknown topics first."""
        grouped: dict[Address, list[TopicPartition]] = {}
        for at, leader in self.leaders(partitions).items():
            grouped.setdefault(leader.address, []).append(at)
        return grouped

    def forget_leaders(self) -> None:
        """Discard the cached topics, which proved wrong; the next use fetches them again."""
        self._view.forget_topics()

    def known_topic(self, name: str) -> TopicDescription | None:
        """Return the cached topic; None when it is unknown or was discarded."""
        return self._view.topic(name)

    # --- Calls to brokers ---

    def start(self, address: Address, call: Call[Result]) -> Started[Result]:
        """Send one call to one broker without waiting for its answer."""
        return self._pool.start(address, call)

    def at(self, address: Address, call: Call[Result]) -> Result:
        """Send one call to one broker. A failed connection is not used again."""
        return self._pool.start(address, call).result()

    def at_each(self, asked: Mapping[Address, Call[Result]]) -> Iterator[Result]:
        """Send a call to each broker concurrently; return the results in the same order."""
        under_way: list[Started[Result]] = []
        try:
            under_way.extend(self._pool.start(address, call) for address, call in asked.items())
            while under_way:
                yield under_way.pop(0).result()
        finally:
            for one in under_way:
                one.forget()

    def anywhere(self, call: Call[Result]) -> Result:
        """Send the call to the first reachable broker: known brokers, then bootstrap addresses."""
        problems: list[BrokerUnreachableError] = []
        for address in self._view.candidates(self._bootstrap):
            try:
                return self.at(address, call)
            except BrokerUnreachableError as error:
                problems.append(error)
        raise join_unreachable(problems)

    def repeat(self, attempt: Callable[[], Result], *, repeatable: bool) -> Result:
        """Retry an attempt until it succeeds, its error is not retriable, or the time is over."""
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
        """Like `repeat` for reads; the `doubted` errors are raised only after `LOOKS_MAX` of them.

        A broker that is not up to date may report by mistake that a topic does not exist or has
        another id. Each attempt uses another broker. One success is enough; if all fail, the last
        error is raised.
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
        """Send the call to the controller.

        With KRaft any broker forwards the call, and names itself or a random broker as controller.
        """
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

    # --- Metadata ---

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
        """Send a change of one topic to the controller, or raise the controller's error."""

        def attempt() -> None:
            for result in self._at_controller(call):
                if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise unknown_topic(name)
                raise_error(result.error_code, result.error_message, name)

        self.repeat(attempt, repeatable=repeatable)
        self._view.forget_topic(name)


class _ChangeResult(Protocol):
    """The common fields of the answers to topic changes."""

    @property
    def error_code(self) -> ErrorCode: ...

    @property
    def error_message(self) -> str | None: ...
