"""Decisions about metadata: from an image and a request to guarded writes or an error. Pure.

Nothing here reads a clock, draws a number or waits: ids are arguments. A decision is valid for its
image; on any other image the compares in its writes fail, and `service` decides again. A second
decision after a successful write returns the finished result: a topic is recognised by its id,
which is drawn once for a request. This distinguishes a lost response from a lost write.

Guarantees of the writes:

- a topic is published last: its partitions are in the store before or together with its name;
- a name and an id are given to one topic, and names that differ only in `.` and `_` to one of them;
- the leader is in the in-sync replicas, which are replicas of the partition;
- a producer id is allocated once.

The leader epoch of a new partition is 0. A broker that is alone keeps it: no other broker can have
led in between (docs/decisions/0002). In a cluster, `elections` raises it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from penstock.cluster import values
from penstock.cluster.configs.drain_setting import drained_brokers
from penstock.cluster.configs.topic_configs import check_override, check_together
from penstock.cluster.image import (
    NO_SETTINGS,
    BrokerState,
    MetadataImage,
    PartitionImage,
    TopicImage,
    similar_name,
)
from penstock.cluster.keys import Keys
from penstock.cluster.placement import placed
from penstock.cluster.stores.port import Compare, Delete, DeletePrefix, Operation, Put
from penstock.cluster.topic_rules import (
    DEFAULT,
    TopicRules,
    check_assignment,
    check_creatable_name,
    partition_count,
    replication_factor,
)
from penstock.core.errors import (
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    InvalidTopicNameError,
    PenstockError,
    PolicyViolationError,
    StoreError,
    TopicExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from penstock.core.limits import (
    PRODUCER_ID_BLOCK_SIZE,
    STORE_COMPARES_MAX,
    STORE_OPERATIONS_MAX,
    TOPICS_PER_REQUEST_MAX,
)

PARTITIONS_PER_TRANSACTION = 100
"""Partition states in one write: leaves space for the publishing key, settings and guards."""

FIRST_LEADER_EPOCH = 0

MIN_ISR = "min.insync.replicas"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic to create."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Partition number and its replicas; if set, the two numbers above must be -1."""
    settings: Mapping[str, str | None] = field(default_factory=lambda: NO_SETTINGS)


@dataclass(frozen=True, slots=True)
class GuardedWrites:
    """One transaction: the operations are applied only if the compares hold."""

    compares: tuple[Compare, ...]
    operations: tuple[Operation, ...]


def replacement(
    key: str, known_revision: int | None, value: bytes | None, guards: tuple[Compare, ...]
) -> GuardedWrites:
    """Return the write that replaces a key's value (None deletes it), if it is unchanged.

    `known_revision` is None for a key that does not exist yet.
    """
    compare = Compare.unchanged(key, known_revision or 0)
    return GuardedWrites((*guards, compare), (Delete(key) if value is None else Put(key, value),))


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """A valid topic that is not created yet."""

    topic: TopicImage
    """The topic after its creation; its revisions are 0 until it is stored."""


TopicDecision = TopicImage | TopicCreation | PenstockError
"""The existing topic, the topic to create, or the error."""
TopicDefaults = Callable[[MetadataImage], Mapping[str, str]]
"""The defaults of topics, for an image of the metadata."""


def decide_creations(
    image: MetadataImage,
    topics: Sequence[NewTopic],
    ids: Sequence[UUID],
    rules: TopicRules,
    defaults: Mapping[str, str] = NO_SETTINGS,
) -> list[TopicDecision]:
    """Return one decision for each requested topic; `ids` are the ids of new topics.

    A topic's own settings must not contradict `defaults`, which it uses otherwise.
    """
    return list(creation_decisions(image, topics, ids, rules, defaults))


def creation_decisions(
    image: MetadataImage,
    topics: Sequence[NewTopic],
    ids: Sequence[UUID],
    rules: TopicRules,
    defaults: Mapping[str, str] = NO_SETTINGS,
) -> Iterator[TopicDecision]:
    """Yield the decisions of `decide_creations` one by one."""
    assert len(topics) == len(ids)
    if len(topics) > TOPICS_PER_REQUEST_MAX:
        too_many = f"{len(topics)} topics in one request, at most {TOPICS_PER_REQUEST_MAX}"
        yield from (PolicyViolationError(too_many) for _ in topics)
        return
    duplicates = _duplicates(topic.name for topic in topics)
    # Names and partitions that this request itself uses, before they are in an image.
    taken: dict[str, str] = {}
    room = rules.partitions_per_broker_max * max(1, len(image.brokers)) - image.partition_count
    for topic, topic_id in zip(topics, ids, strict=True):
        existing = image.topic_by_id(topic_id)
        if existing is not None:
            yield existing
            continue
        try:
            if topic.name in duplicates:
                raise InvalidRequestError("Duplicate topic name.")
            created = _new_topic(image, topic, topic_id, rules, taken, defaults)
            if len(created.partitions) > room:
                raise PolicyViolationError(
                    f"{len(created.partitions)} more partitions are too many for this cluster: "
                    f"there is room for {max(0, room)}."
                )
        except PenstockError as error:
            yield error
            continue
        room -= len(created.partitions)
        similar = similar_name(topic.name)
        if similar is not None:
            taken[similar] = topic.name
        yield TopicCreation(created)


def _new_topic(
    image: MetadataImage,
    topic: NewTopic,
    topic_id: UUID,
    rules: TopicRules,
    taken: Mapping[str, str],
    defaults: Mapping[str, str],
) -> TopicImage:
    check_creatable_name(topic.name)
    similar = similar_name(topic.name)
    collides = image.similar_names.get(similar) or taken.get(similar) if similar else None
    if collides is not None and collides != topic.name:
        raise InvalidTopicNameError(
            f"Topic '{topic.name}' collides with existing topic: {collides}"
        )
    if topic.name in image.topics:
        raise TopicExistsError(f"Topic '{topic.name}' already exists.")
    settings = {}
    for name, text in topic.settings.items():
        check_override(name, text)
        assert text is not None
        settings[name] = text
    check_together({**defaults, **settings})
    assigned = _replicas(image, topic, topic_id, rules)
    # Partitions with the same replicas share an image: a topic may have ten thousand of them.
    min_isr = int({**defaults, **settings}.get(MIN_ISR, "1"))
    first = {replicas: new_partition(image, replicas, min_isr) for replicas in set(assigned)}
    partitions = tuple([first[replicas] for replicas in assigned])
    return TopicImage(topic.name, topic_id, partitions, settings or NO_SETTINGS, 0)


def new_partition(image: MetadataImage, replicas: tuple[int, ...], min_isr: int) -> PartitionImage:
    """Return the first state of a partition.

    All replicas of running brokers are in sync, because they are empty; the others may not serve.
    """
    brokers = image.brokers
    in_sync = tuple(
        [
            one
            for one in replicas
            if (broker := brokers.get(one)) is not None and broker.state is BrokerState.RUNNING
        ]
    )
    if not in_sync:
        raise InvalidReplicaAssignmentError(
            f"All brokers specified in the manual partition assignment {list(replicas)} are fenced "
            "or in controlled shutdown."
        )
    epochs = tuple([image.brokers[broker_id].epoch for broker_id in in_sync])
    drained = drained_brokers(image)
    leader = next((one for one in in_sync if one not in drained), in_sync[0])
    return PartitionImage(
        replicas,
        leader,
        FIRST_LEADER_EPOCH,
        in_sync,
        0,
        broker_epoch=image.brokers[leader].epoch,
        isr_epochs=epochs,
        min_isr=min_isr,
    )


def _replicas(
    image: MetadataImage, topic: NewTopic, topic_id: UUID, rules: TopicRules
) -> tuple[tuple[int, ...], ...]:
    if topic.assignments:
        return check_assignment(
            topic.assignments,
            partition_count_asked=topic.partition_count,
            replication_factor_asked=topic.replication_factor,
            brokers=known_brokers(image),
            rules=rules,
        )
    # Kafka checks the replication factor first, so a request wrong in both gets that error.
    racks, absent = running_racks(image), absent_brokers(image)
    factor = replication_factor(topic.replication_factor, len(racks), len(absent), rules)
    count = partition_count(topic.partition_count, rules)
    return placed(racks, topic_id, range(count), factor, absent=absent)


def known_brokers(image: MetadataImage) -> frozenset[int]:
    """Return the brokers that run, and the ones that ran before: they may come back."""
    return frozenset(image.brokers) | frozenset(image.nodes)


def absent_brokers(image: MetadataImage) -> list[int]:
    """Return the known brokers that do not run now, are about to stop or are drained."""
    return sorted(known_brokers(image) - running_racks(image).keys())


def running_racks(image: MetadataImage) -> dict[int, str | None]:
    """Return the racks of the brokers that may get new replicas: not drained, if there are any."""
    running = [one for one in image.brokers.values() if one.state is BrokerState.RUNNING]
    drained = drained_brokers(image)
    wanted = [one for one in running if one.id not in drained] or running
    return {broker.id: broker.rack for broker in wanted}


def outcome(decision: TopicDecision, failure: StoreError | None) -> TopicImage | PenstockError:
    """Return the result of a decision after its write, or its error."""
    if isinstance(decision, TopicCreation):
        return failure or decision.topic
    return decision


def _states(keys: Keys, topic: TopicImage, start: int) -> list[Operation]:
    """Return the partitions of one transaction, not all: the event loop encodes them."""
    few = topic.partitions[start : start + PARTITIONS_PER_TRANSACTION]
    return [
        Put(keys.partition(topic.id, index), values.write_partition(state))
        for index, state in enumerate(few, start)
    ]


def is_large(partition_count: int) -> bool:
    """Return whether this number of new partitions needs several transactions."""
    return partition_count > PARTITIONS_PER_TRANSACTION


def creation_writes(
    keys: Keys,
    creations: Iterable[TopicCreation],
    guards: tuple[Compare, ...],
    *,
    is_held: bool = False,
) -> Iterator[GuardedWrites]:
    """Yield the transactions that create these topics, in order.

    Small topics share transactions. The partitions of a large topic are written first, and its last
    transaction publishes it; until then it is not served. `is_held`: the caller holds the key
    `creating/<topic id>`, so that no other broker deletes them; the publication deletes the key.
    """
    compares: list[Compare] = list(guards)
    operations: list[Operation] = []
    for creation in creations:
        topic = creation.topic
        start = 0
        while len(topic.partitions) - start > PARTITIONS_PER_TRANSACTION:
            yield GuardedWrites(guards, tuple(_states(keys, topic, start)))
            start += PARTITIONS_PER_TRANSACTION
        states = _states(keys, topic, start)
        publication = [*states, *_publication(keys, topic)]
        if is_held:
            publication.append(Delete(keys.creating(topic.id)))
        absent = _absent(keys, topic)
        is_full = len(operations) + len(publication) > STORE_OPERATIONS_MAX
        if is_full or len(compares) + len(absent) > STORE_COMPARES_MAX:
            yield GuardedWrites(tuple(compares), tuple(operations))
            compares, operations = list(guards), []
        compares.extend(absent)
        operations.extend(publication)
    if operations:
        yield GuardedWrites(tuple(compares), tuple(operations))


def _absent(keys: Keys, topic: TopicImage) -> tuple[Compare, ...]:
    """Return the compares of a new name: neither it nor a similar one is in use."""
    similar = similar_name(topic.name)
    names = () if similar is None else (Compare.absent(keys.name(similar)),)
    return (Compare.absent(keys.topic(topic.name)), *names)


def _publication(keys: Keys, topic: TopicImage) -> Iterator[Operation]:
    value = values.TopicValue(topic.id, len(topic.partitions), topic.is_adopted, topic.mirror)
    yield Put(keys.topic(topic.name), values.write_topic(value))
    if topic.settings:
        yield Put(keys.topic_settings(topic.name), values.write_settings(topic.settings))
    similar = similar_name(topic.name)
    if similar is not None:
        yield Put(keys.name(similar), values.write_name(topic.name))


def decide_deletions(
    image: MetadataImage, selectors: Sequence[str | UUID]
) -> list[TopicImage | PenstockError]:
    """Return the topics to delete, by name or id, or the error of each."""
    found = [_selected(image, selector) for selector in selectors]
    repeated = _duplicates(topic.name for topic in found if isinstance(topic, TopicImage))
    return [
        InvalidRequestError("Duplicate topic name.")
        if isinstance(topic, TopicImage) and topic.name in repeated
        else topic
        for topic in found
    ]


def _selected(image: MetadataImage, selector: str | UUID) -> TopicImage | PenstockError:
    if isinstance(selector, UUID):
        by_id = image.topic_by_id(selector)
        return by_id or UnknownTopicIdError("This server does not host this topic ID.")
    by_name = image.topic(selector)
    return by_name or UnknownTopicOrPartitionError(
        "This server does not host this topic-partition."
    )


def deletion_writes(
    keys: Keys, topics: Iterable[TopicImage], guards: tuple[Compare, ...]
) -> Iterator[GuardedWrites]:
    """Yield the transactions that delete these topics; one transaction deletes a whole topic."""
    compares: list[Compare] = list(guards)
    operations: list[Operation] = []
    for topic in topics:
        similar = similar_name(topic.name)
        names = () if similar is None else (Delete(keys.name(similar)),)
        if len(operations) + len(names) + 3 > STORE_OPERATIONS_MAX:
            yield GuardedWrites(tuple(compares), tuple(operations))
            compares, operations = list(guards), []
        compares.append(Compare.unchanged(keys.topic(topic.name), topic.revision))
        operations += (
            Delete(keys.topic(topic.name)),
            Delete(keys.topic_settings(topic.name)),
            DeletePrefix(keys.partitions(topic.id)),
            *names,
        )
    if operations:
        yield GuardedWrites(tuple(compares), tuple(operations))


def decide_producer_ids(
    keys: Keys, image: MetadataImage, guards: tuple[Compare, ...]
) -> tuple[range, GuardedWrites]:
    """Return a block of producer ids, and the write that allocates it to the caller.

    After an ambiguous write the block is left unused: there are enough ids.
    """
    start = image.next_producer_id
    block = range(start, start + PRODUCER_ID_BLOCK_SIZE)
    key = keys.producer_ids()
    compare = Compare.unchanged(key, image.producer_ids_revision)
    write = Put(key, values.write_next_producer_id(block.stop))
    return block, GuardedWrites((*guards, compare), (write,))


def decide_founding(
    keys: Keys, cluster_id: str, levels: Mapping[str, int] | None = None
) -> GuardedWrites:
    """Return the write that creates a cluster in an empty store; it succeeds once per store.

    `levels` of features are for a cluster of several brokers. It fails during an import.
    """
    features = () if levels is None else (Put(keys.features(), values.write_features(levels)),)
    return GuardedWrites(
        (Compare.absent(keys.cluster_id()), Compare.absent(keys.transfer())),
        (
            Put(keys.format(), values.write_format()),
            Put(keys.cluster_id(), values.write_cluster_id(cluster_id)),
            *features,
        ),
    )


def decide_adopted(keys: Keys, image: MetadataImage, next_producer_id: int) -> GuardedWrites:
    """Return the write that marks the logs of the data directory as adopted.

    Producer ids in those logs are in use: a new producer must not be mistaken for an old one.
    """
    key = keys.producer_ids()
    first_free = max(next_producer_id, image.next_producer_id)
    return GuardedWrites(
        (Compare.unchanged(key, image.producer_ids_revision),),
        (
            Put(key, values.write_next_producer_id(first_free)),
            Put(keys.adopted(), values.write_adopted()),
        ),
    )


def _duplicates(names: Iterable[str]) -> frozenset[str]:
    seen: set[str] = set()
    repeated: set[str] = set()
    for name in names:
        (repeated if name in seen else seen).add(name)
    return frozenset(repeated)
