"""`MetadataService`: follows the store, publishes each new image, and carries out decisions.

A change request is decided on the newest image and written with compares. When a compare fails, or
a response is lost, everything is loaded again and the request is decided again; a topic that this
very request created is recognised by its id. When a call returns, `image` shows its effect: a
caller reads its own writes. One service carries out one change after the other, so on one host
compares fail only when another process writes to the store.

It knows no logs and no connections; hosts of partitions subscribe. It does not compare the cluster
id with a data directory: the node does, before it serves.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID, uuid4

from penstock.cluster import (
    acl_changes,
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
    GuardedWrites,
    NewTopic,
    TopicCreation,
    TopicDefaults,
    creation_decisions,
)
from penstock.cluster.followed_image import FollowedImage, Subscriber
from penstock.cluster.ids import draw_id, id_text
from penstock.cluster.image import NO_SETTINGS, BrokerImage, MetadataImage, TopicImage
from penstock.cluster.keys import DEFAULT_ROOT, Keys
from penstock.cluster.membership import Membership
from penstock.cluster.quota_changes import QuotaChange
from penstock.cluster.stores.port import Compare, MetadataStore
from penstock.cluster.topic_changes import MorePartitions
from penstock.cluster.topic_rules import TopicRules
from penstock.cluster.unhurried import unhurried
from penstock.core.errors import AmbiguousStoreError, PenstockError, StoreError
from penstock.core.limits import METADATA_ATTEMPTS_MAX

Result = TypeVar("Result")


class Decision(NamedTuple, Generic[Result]):
    """The outcome of a request, decided on one image."""

    writes: Iterable[GuardedWrites] | None
    """In order, computed as they are written; None if nothing changes."""
    result: Callable[[], Result]
    """Returns the result of the request, when the writes are in the image."""


class ChangeBase(NamedTuple):
    """The state that a change is decided on."""

    image: MetadataImage
    keys: Keys
    guards: tuple[Compare, ...]
    """The compares of each transaction."""


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
    ) -> None:
        self._store = store
        self._keys = Keys(root)
        self._rules = rules or TopicRules()
        self._defaults = defaults
        self._random_id = random_id
        self._followed = FollowedImage(store, self._keys)
        self._one_change = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._membership: Membership | None = None

    @property
    def image(self) -> MetadataImage:
        """The newest image; immutable, so it may be kept."""
        return self._followed.newest

    @property
    def topic_defaults(self) -> Mapping[str, str]:
        """The defaults of topics, by the newest image."""
        return self._defaults(self.image)

    def follow_rules(self, rules: TopicRules) -> None:
        """Use other rules, starting with the next change."""
        self._rules = rules

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` for each new image; the returned function unsubscribes."""
        return self._followed.subscribe(subscriber)

    async def start(self, tasks: asyncio.TaskGroup, *, cluster_id: str | None = None) -> bool:
        """Load the metadata, creating the cluster if there is none, and follow it in `tasks`.

        A new cluster gets `cluster_id` if it is set. Returns True until `adopt_topics` has been
        carried out: a crash between the two must not leave logs without a topic.
        """
        assert not self._tasks, "a service is started once"
        await self._followed.reload()
        if not self.image.cluster_id:
            await self._found(cluster_id or id_text(draw_id(self._random_id)))
        self._tasks.append(tasks.create_task(self._followed.follow(), name="metadata-follow"))
        # Partitions of a large creation that a crash or a failure interrupted. Only here: while
        # this process runs, a write whose response was lost may still arrive and publish the topic.
        if self.image.unpublished:
            await self._write(controller.sweep_writes(self._keys, self.image, self._guards()))
        # Keys of deleted access rules, likewise.
        if self.image.acl_removals:
            await self._write(acl_changes.sweep_writes(self._keys, self.image, self._guards()))
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
                self._keys, map(TopicCreation, missing), self._guards()
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
        self._followed.cancel_waits()
        if self._membership is not None:
            await self._membership.leave()
            self._membership = None

    async def register_broker(self, broker: BrokerImage, tasks: asyncio.TaskGroup) -> int:
        """Register this broker, keep its session in `tasks`, and return its epoch.

        The epoch in `broker` is ignored: it is created here. Raises `DuplicateBrokerError` when
        another data directory uses the id.
        """
        assert self._membership is None, "a broker registers once"
        membership = Membership(self._store, self._keys, broker)
        epoch = await membership.join()
        self._membership = membership
        await self._followed.wait_revision(epoch)
        self._tasks.append(tasks.create_task(membership.keep(), name="broker-session"))
        return epoch

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

        async with self._changing():
            failure: StoreError | None = None
            for _ in range(METADATA_ATTEMPTS_MAX):
                decisions = await decide()
                creations = [made for made in decisions if isinstance(made, TopicCreation)]
                if not creations or validate_only or failure is not None:
                    break
                failure = await self._attempt(
                    controller.creation_writes(self._keys, creations, self._guards())
                )
            else:
                failure = StoreError("the metadata changed under every attempt to create topics")
                decisions = await decide()
        return [controller.outcome(decision, failure) for decision in decisions]

    async def delete_topics(
        self, selectors: Sequence[str | UUID]
    ) -> list[TopicImage | PenstockError]:
        """Delete topics by name or id; return one outcome for each, in request order.

        A deleted topic is returned in its last state. Its hosts remove its logs.
        """
        async with self._changing():
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
                failure = await self._attempt(
                    controller.deletion_writes(self._keys, left, self._guards())
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

        def decide() -> Decision[TopicImage]:
            nonlocal tried
            topic = self.image.topic(wanted.name)
            if topic is not None and topic.id == tried and len(topic.partitions) == wanted.count:
                # The response to the write was lost; the write was not.
                return Decision(None, lambda: topic)
            grown = topic_changes.decide_growth(self.image, wanted, self._rules)
            if validate_only:
                return Decision(None, lambda: grown)
            assert topic is not None
            tried = topic.id
            writes = topic_changes.growth_writes(self._keys, topic, grown, self._guards())
            return Decision(writes, lambda: self.image.topics[wanted.name])

        return await self._change("create partitions", decide)

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
            writes = topic_changes.settings_writes(self._keys, topic, changed, self._guards())
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
                self._keys, self.image, name, settings, self._guards()
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
                self._keys, self.image, name, settings, self._guards()
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
                self._keys, self.image, change.entity, quotas, self._guards()
            )
            return Decision((writes,), lambda: None)

        await self._change("change quotas", decide)

    async def allocate_producer_ids(self) -> range:
        """Allocate a block of unused producer ids."""

        def decide() -> Decision[range]:
            block, writes = controller.decide_producer_ids(self._keys, self.image, self._guards())
            return Decision((writes,), lambda: block)

        return await self._change("allocate producer ids", decide)

    async def carry_out(
        self, action: str, decide: Callable[[ChangeBase], Awaitable[Decision[Result]]]
    ) -> Result:
        """Decide on the newest image and write, until the writes are certainly in the store.

        It is for changes that another module decides. `decide` may let the event loop run.
        """
        async with self._changing():
            for _ in range(METADATA_ATTEMPTS_MAX):
                decision = await decide(ChangeBase(self.image, self._keys, self._guards()))
                if decision.writes is None or await self._write(decision.writes):
                    return decision.result()
        raise StoreError(f"the metadata changed under every attempt to {action}")

    async def _change(self, action: str, decide: Callable[[], Decision[Result]]) -> Result:
        async def decided(_base: ChangeBase) -> Decision[Result]:
            return decide()

        return await self.carry_out(action, decided)

    @contextlib.asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Hold the lock for one change at a time, by a registered broker."""
        async with self._one_change:
            await self._stay_registered()
            yield

    async def _stay_registered(self) -> None:
        """Register again if the session ended because this process was suspended for too long.

        If only the session's task did this, a request could fail before: not enough brokers, or
        outdated writes. If another process has the id by now, this one must not register: its
        writes fail.
        """
        if self._membership is None or not self._membership.is_missing_in(self.image):
            return
        # The session's task gets the same error and logs it; the write will fail too.
        with contextlib.suppress(PenstockError):
            await self._followed.wait_revision(await self._membership.ensure())

    def _guards(self) -> tuple[Compare, ...]:
        """Return the compare of every write of a registered broker: it is still registered."""
        if self._membership is None:
            return ()
        return (self._membership.guard(),)

    async def _found(self, cluster_id: str) -> None:
        writes = controller.decide_founding(self._keys, cluster_id)
        for _ in range(METADATA_ATTEMPTS_MAX):
            with contextlib.suppress(AmbiguousStoreError):
                await self._store.transact(writes.compares, writes.operations)
            # The cluster exists now, also if another process created it.
            await self._followed.reload()
            if self.image.cluster_id:
                return
        raise StoreError("the cluster could not be founded: the store took no write")

    async def _attempt(self, writes: Iterable[GuardedWrites]) -> StoreError | None:
        """Write the transactions; return the error if the store fails permanently."""
        try:
            await self._write(writes)
        except StoreError as error:
            return error
        return None

    async def _write(self, writes: Iterable[GuardedWrites]) -> bool:
        """Write in order; return whether all transactions are certainly written and in the image.

        If one is not, the image is loaded again, and the caller decides on that image.
        """
        for write in writes:
            try:
                result = await self._store.transact(write.compares, write.operations)
                has_landed = result.succeeded
            except AmbiguousStoreError:
                has_landed = False
            if not has_landed:
                await self._followed.reload()
                await self._stay_registered()
                return False
            await self._followed.wait_revision(result.revision)
        return True
