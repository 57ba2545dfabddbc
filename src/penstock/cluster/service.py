"""`MetadataService`: follows the store, publishes each new image, and carries out decisions.

A change request is decided on the newest image and written with compares (`link.broker_link`). When
a compare fails, or a response is lost, the request is decided again on a newer image; a topic that
this very request created is recognised by its id. When a call returns, `image` shows its effect: a
caller reads its own writes. One service carries out one change after the other, so on one host
compares fail only when another process writes to the store.

It knows no logs and no connections; hosts of partitions subscribe. It does not compare the cluster
id with a data directory: the node does, before it serves.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import UUID, uuid4

from penstock.cluster import (
    broker_changes,
    controller,
    group_changes,
    quota_changes,
    topic_changes,
)
from penstock.cluster.configs.described_configs import BrokerLayers
from penstock.cluster.configs.group_configs import GroupRules
from penstock.cluster.configs.setting_changes import SettingsChange
from penstock.cluster.controller import (
    NewTopic,
    TopicCreation,
    TopicDefaults,
    creation_decisions,
    is_large,
)
from penstock.cluster.ids import draw_id, id_text
from penstock.cluster.image import (
    NO_SETTINGS,
    BrokerImage,
    BrokerState,
    MetadataImage,
    TopicImage,
)
from penstock.cluster.keys import DEFAULT_ROOT, Keys
from penstock.cluster.link.broker_link import BrokerLink
from penstock.cluster.link.change_values import ChangeBase, ClusterRules, Decision
from penstock.cluster.link.controller_role import ControllerRole
from penstock.cluster.link.controlling import Elections
from penstock.cluster.link.followed_image import Subscriber
from penstock.cluster.link.founding import found_cluster
from penstock.cluster.link.lasting import last
from penstock.cluster.link.partition_writes import PartitionWrite
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.stores.port import MetadataStore
from penstock.cluster.topic_changes import MorePartitions
from penstock.cluster.topic_rules import TopicRules
from penstock.cluster.unhurried import unhurried
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import PenstockError, StoreError
from penstock.core.limits import BROKER_SESSION_SECONDS, METADATA_ATTEMPTS_MAX

Result = TypeVar("Result")


class MetadataService:
    """The cluster's metadata as one broker knows it."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        rules: TopicRules | None = None,
        defaults: TopicDefaults = lambda _: NO_SETTINGS,
        root: str = DEFAULT_ROOT,
        random_id: Callable[[], UUID] = uuid4,
        clock: Clock | None = None,
        cluster: ClusterRules | None = None,
    ) -> None:
        """`cluster`: this broker is one of several; None for a broker that is alone."""
        self._store = store
        self._keys = Keys(root)
        self._rules = rules or TopicRules()
        self._defaults = defaults
        self._random_id = random_id
        self._clock = clock or SystemClock()
        self._cluster = cluster
        session_seconds = BROKER_SESSION_SECONDS if cluster is None else cluster.session_seconds
        self._link = BrokerLink(
            store, self._keys, session_seconds=session_seconds, clock=self._clock
        )
        self._tasks: list[asyncio.Task[None]] = []
        self.may_have_lost = False
        """As the argument of `register_broker`, known when the logs were opened."""

    @property
    def image(self) -> MetadataImage:
        """The newest image; immutable, so it may be kept."""
        return self._link.image

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the image is not the newest state of the store; operators must act on them."""
        membership = self._link.membership
        lost = None if membership is None else membership.problem
        return (*self._link.followed.problems, *((lost,) if lost else ()))

    @property
    def is_clustered(self) -> bool:
        """Whether other brokers may share the metadata."""
        return self._cluster is not None

    @property
    def root(self) -> str:
        """The prefix of the cluster's keys."""
        return self._keys.root

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; 0 before it, and while it is lost."""
        membership = self._link.membership
        return membership.epoch if membership is not None and membership.is_registered else 0

    @property
    def is_isolated(self) -> bool:
        """Whether other brokers may soon count this one as stopped: etcd does not answer it."""
        membership = self._link.membership
        return self.is_clustered and membership is not None and membership.is_isolated

    def subscribe_registration(self, subscriber: Callable[[int], None]) -> Callable[[], None]:
        """Call `subscriber` with the epoch of each registration, and with 0 when it is lost.

        The returned function unsubscribes.
        """
        return self._link.subscribe_registration(subscriber)

    async def write_partitions(self, writes: Sequence[PartitionWrite]) -> list[bool]:
        """Write changes of partitions by this broker's replicas; return which are stored.

        It waits until each outcome is known, and for no other change (`link.partition_writer`).
        """
        return await self._link.partitions.write(self._link.membership, writes)

    @property
    def topic_defaults(self) -> Mapping[str, str]:
        """The defaults of topics, by the newest image."""
        return self._defaults(self.image)

    def follow_rules(self, rules: TopicRules) -> None:
        """Use other rules, starting with the next change."""
        self._rules = rules

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` for each new image; the returned function unsubscribes."""
        return self._link.followed.subscribe(subscriber)

    async def start(self, tasks: asyncio.TaskGroup, *, cluster_id: str | None = None) -> bool:
        """Load the metadata, creating the cluster if there is none, and follow it in `tasks`.

        A new cluster gets `cluster_id` if it is set. Returns True until `adopt_topics` has been
        carried out: a crash between the two must not leave logs without a topic.
        """
        assert not self._tasks, "a service is started once"
        await self._link.followed.reload()
        if not self.image.cluster_id:
            named = cluster_id or id_text(draw_id(self._random_id))
            link = self._link
            await found_cluster(self._store, self._keys, link.followed, named, self._cluster)
        self._tasks.append(last(tasks, self._link.followed.follow(), "metadata-follow"))
        return not (await self._store.read(self._keys.adopted())).values

    async def adopt_topics(
        self, topics: Sequence[TopicImage], *, next_producer_id: int = 0
    ) -> None:
        """Adopt topics that exist already, ids and epochs included; once in a store's life.

        Producer ids below `next_producer_id` are in use in their logs and are not allocated.

        Topics that an earlier call adopted before a crash are kept; the final mark is written last.
        """

        def decide() -> Decision[None]:
            missing = [t for t in topics if t.name not in self.image.topics]
            creations = controller.creation_writes(
                self._keys, map(TopicCreation, missing), self._link.guards()
            )
            adopted = controller.decide_adopted(self._keys, self.image, next_producer_id)
            return Decision([*creations, adopted], lambda: None)

        await self._change("adopt topics", decide)

    async def stop(self) -> None:
        """End the broker's session and stop following. The store is left to its owner."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()
        await self._link.leave()

    async def register_broker(
        self, broker: BrokerImage, tasks: asyncio.TaskGroup, *, may_have_lost: bool = False
    ) -> int:
        """Register this broker, keep its session in `tasks`, and return its epoch.

        The epoch in `broker` is ignored: it is created here. In a cluster the broker is `starting`
        until `change_state`. `may_have_lost`: records that it reported as durable may be gone.
        Raises `DuplicateBrokerError` when another data directory uses the id.
        """
        elections = None
        if self._cluster is not None:
            features = self._cluster.features
            broker = replace(broker, state=BrokerState.STARTING, features=features)
            elections = Elections(self._link, self._defaults, self._clock, self._cluster)
        is_lossy = may_have_lost or self.may_have_lost
        membership = await self._link.register(broker, may_have_lost=is_lossy)
        role = ControllerRole(self._link, elections)
        await role.begin()
        self._tasks.append(last(tasks, membership.keep(), "broker-session"))
        self._tasks.append(last(tasks, role.run(), "controller-role"))
        return membership.epoch

    async def change_state(self, state: BrokerState) -> None:
        """Change the state of this broker, for instance to draining."""
        async with self._link.changing():
            for _ in range(METADATA_ATTEMPTS_MAX):
                if await self._link.change_state(state):
                    return
        raise StoreError("the metadata changed under every attempt to change the broker's state")

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> list[TopicImage | PenstockError]:
        """Create topics; return one outcome for each, in request order.

        With `validate_only` nothing is written and the images show the result.
        """
        ids = await unhurried(draw_id(self._random_id) for _ in topics)

        async def decide() -> list[controller.TopicDecision]:
            known, defaults = self.image, self.topic_defaults
            return await unhurried(creation_decisions(known, topics, ids, self._rules, defaults))

        async with self._link.changing():
            failure: StoreError | None = None
            for _ in range(METADATA_ATTEMPTS_MAX):
                decisions = await decide()
                creations = [made for made in decisions if isinstance(made, TopicCreation)]
                if not creations or validate_only or failure is not None:
                    break
                failure = await self._create(creations)
            else:
                failure = StoreError("the metadata changed under every attempt to create topics")
                decisions = await decide()
        return [controller.outcome(decision, failure) for decision in decisions]

    async def _create(self, creations: Sequence[TopicCreation]) -> StoreError | None:
        """Write these topics; return the error if the store fails permanently."""
        small, large = list[TopicCreation](), list[TopicCreation]()
        for one in creations:
            (large if is_large(len(one.topic.partitions)) else small).append(one)
        try:
            writes = controller.creation_writes(self._keys, small, self._link.guards())
            if not await self._link.write(writes):
                return None
            for one in large:
                held = partial(controller.creation_writes, self._keys, (one,), is_held=True)
                if not await self._link.write_held(one.topic.id, held):
                    return None
        except StoreError as error:
            return error
        return None

    async def delete_topics(
        self, selectors: Sequence[str | UUID]
    ) -> list[TopicImage | PenstockError]:
        """Delete topics by name or id; return one outcome for each, in request order.

        A deleted topic is returned in its last state. Its hosts remove its logs.
        """
        async with self._link.changing():
            decisions = controller.decide_deletions(self.image, selectors)
            failure: StoreError | None = None
            for _ in range(METADATA_ATTEMPTS_MAX):
                # Looked up again each time: partitions may have been added meanwhile.
                left = [
                    topic
                    for decision in decisions
                    if isinstance(decision, TopicImage)
                    and (topic := self.image.topic_by_id(decision.id)) is not None
                ]
                if not left or failure is not None:
                    break
                failure = await self._link.attempt(
                    controller.deletion_writes(self._keys, left, self._link.guards())
                )
            remaining = {topic.id for topic in left}
        failure = failure or StoreError("the metadata changed under every attempt to delete topics")
        return [
            failure if isinstance(decision, TopicImage) and decision.id in remaining else decision
            for decision in decisions
        ]

    async def create_partitions(
        self, wanted: MorePartitions, *, validate_only: bool = False
    ) -> TopicImage:
        """Add partitions to a topic; return the changed topic, also if only validated.

        Raises a domain error if the change is rejected.
        """
        tried: UUID | None = None
        async with self._link.changing():
            for _ in range(METADATA_ATTEMPTS_MAX):
                topic = self.image.topic(wanted.name)
                if topic and topic.id == tried and len(topic.partitions) == wanted.count:
                    # The response to the write was lost; the write was not.
                    return topic
                grown = topic_changes.decide_growth(self.image, wanted, self._rules)
                if validate_only:
                    return grown
                assert topic is not None
                tried = topic.id
                if await self._grow(topic, grown):
                    return self.image.topics[wanted.name]
        raise StoreError("the metadata changed under every attempt to create partitions")

    async def _grow(self, topic: TopicImage, grown: TopicImage) -> bool:
        if is_large(len(grown.partitions) - len(topic.partitions)):
            held = partial(topic_changes.growth_writes, self._keys, topic, grown, is_held=True)
            return await self._link.write_held(topic.id, held)
        return await self._link.write(
            topic_changes.growth_writes(self._keys, topic, grown, self._link.guards())
        )

    async def change_settings(
        self, change: SettingsChange, *, validate_only: bool = False
    ) -> TopicImage:
        """Change the settings of a topic; return the changed topic, also if only validated.

        Raises a domain error if the change is rejected.
        """

        def decide() -> Decision[TopicImage]:
            changed = topic_changes.decide_settings(self.image, change, self.topic_defaults)
            topic = self.image.topics[change.name]
            if validate_only:
                return Decision(None, lambda: changed)
            if changed.settings == topic.settings:
                return Decision(None, lambda: topic)
            writes = topic_changes.settings_writes(self._keys, topic, changed, self._link.guards())
            return Decision((writes,), lambda: self.image.topics[change.name])

        return await self._change("change settings", decide)

    async def change_group_settings(
        self, change: SettingsChange, rules: GroupRules, *, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change the settings of a group and return them; `validate_only` stores nothing.

        Raises a domain error if the change is rejected.
        """
        name = change.name

        def decide() -> Decision[Mapping[str, str]]:
            settings = group_changes.decide_group_settings(self.image, change, rules)
            if validate_only or settings == self.image.group_settings(name):
                return Decision(None, lambda: settings)
            writes = group_changes.group_settings_writes(
                self._keys, self.image, name, settings, self._link.guards()
            )
            return Decision((writes,), lambda: self.image.group_settings(name))

        return await self._change("change settings of a group", decide)

    async def change_broker_settings(
        self,
        change: SettingsChange,
        layers: Callable[[MetadataImage], BrokerLayers],
        *,
        validate_only: bool = False,
    ) -> Mapping[str, str]:
        """Change settings of a broker or of all; return the changed ones, also if only validated.

        `layers` are the settings given to the broker that got the request. Raises a domain error if
        the change is rejected.
        """
        name = change.name

        def decide() -> Decision[Mapping[str, str]]:
            given = layers(self.image)
            settings = broker_changes.decide_broker_settings(self.image, change, given)
            if validate_only or settings == self.image.settings_of_broker(name):
                return Decision(None, lambda: settings)
            writes = broker_changes.broker_settings_writes(
                self._keys, self.image, name, settings, self._link.guards()
            )
            return Decision((writes,), lambda: self.image.settings_of_broker(name))

        return await self._change("change a broker's settings", decide)

    async def change_quotas(self, change: QuotaChange, *, validate_only: bool = False) -> None:
        """Change the quotas of an entity; raise a domain error if the change is rejected."""

        def decide() -> Decision[None]:
            quotas = quota_changes.decide_quotas(self.image, change)
            known = self.image.quotas.get(change.entity)
            if validate_only or quotas == ({} if known is None else known.quotas):
                return Decision(None, lambda: None)
            writes = quota_changes.quota_writes(
                self._keys, self.image, change.entity, quotas, self._link.guards()
            )
            return Decision((writes,), lambda: None)

        await self._change("change quotas", decide)

    async def allocate_producer_ids(self) -> range:
        """Allocate a block of unused producer ids."""

        def decide() -> Decision[range]:
            block, writes = controller.decide_producer_ids(
                self._keys, self.image, self._link.guards()
            )
            return Decision((writes,), lambda: block)

        return await self._change("allocate producer ids", decide)

    async def carry_out(
        self, action: str, decide: Callable[[ChangeBase], Awaitable[Decision[Result]]]
    ) -> Result:
        """Decide on the newest image and write, until the writes are certainly in the store.

        It is for changes that another module decides. `decide` may let the event loop run.
        """
        async with self._link.changing():
            for _ in range(METADATA_ATTEMPTS_MAX):
                decision = await decide(ChangeBase(self.image, self._keys, self._link.guards()))
                if decision.writes is None or await self._link.write(decision.writes):
                    return decision.result()
        raise StoreError(f"the metadata changed under every attempt to {action}")

    async def _change(self, action: str, decide: Callable[[], Decision[Result]]) -> Result:
        async def decided(_base: ChangeBase) -> Decision[Result]:
            return decide()

        return await self.carry_out(action, decided)
