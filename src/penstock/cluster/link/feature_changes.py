"""Raises the levels of features that a cluster uses.

A level is raised only if every registered broker supports it. One transaction guarantees this: it
compares the levels, and that no broker has registered since the image that was looked at. A
registration compares the levels likewise. So at each moment all registered brokers support the
levels in use. Comparing each known registration would not be enough: a broker that is not in the
image could register in between.

Levels are not lowered: a newer broker may have written values that an older one cannot read.
"""

from collections.abc import Mapping
from typing import Protocol

from penstock.cluster import values
from penstock.cluster.controller import GuardedWrites
from penstock.cluster.features.levels import range_of
from penstock.cluster.image import MetadataImage
from penstock.cluster.link.change_values import ChangeBase, Decision
from penstock.cluster.link.leader_elections import Changing
from penstock.cluster.stores.port import Compare, Put
from penstock.core.errors import InvalidRequestError


class LevelRefusedError(InvalidRequestError):
    """A level that cannot be used, with Kafka's words for the reason."""

    def __init__(self, feature: str, reason: str) -> None:
        super().__init__(reason)
        self.feature = feature


class KnownMetadata(Changing, Protocol):
    """The metadata of the cluster: `MetadataService`."""

    @property
    def image(self) -> MetadataImage:
        """The newest image."""
        ...


def level_problem(image: MetadataImage, feature: str, level: int) -> str | None:
    """Return why a registered broker does not support this level; None if all do."""
    for broker in sorted(image.brokers.values(), key=lambda one: one.id):
        found = range_of(broker.features, feature)
        if found is None:
            return f"Broker {broker.id} does not support this feature."
        if not found.lowest <= level <= found.highest:
            return f"Broker {broker.id} only supports versions {found.lowest}-{found.highest}"
    return None


def decide_levels(base: ChangeBase, wanted: Mapping[str, int]) -> GuardedWrites | None:
    """Return the write that raises levels; None if they are in use. Raises `LevelRefusedError`."""
    image, used = base.image, base.image.features.levels
    for feature, level in wanted.items():
        if level < used.get(feature, 0):
            raise LevelRefusedError(
                feature,
                f"The cluster uses level {used[feature]}, and levels are not lowered: newer values "
                "may be stored.",
            )
        problem = level_problem(image, feature, level)
        if problem is not None:
            raise LevelRefusedError(feature, problem)
    levels = {**used, **wanted}
    if levels == dict(used):
        return None
    key = base.keys.features()
    compares = (
        *base.guards,
        Compare.unchanged(key, image.features.revision),
        Compare.none_created_since(base.keys.brokers(), image.revision),
    )
    return GuardedWrites(compares, (Put(key, values.write_features(levels)),))


async def raise_levels(
    metadata: KnownMetadata, wanted: Mapping[str, int], *, validate_only: bool = False
) -> None:
    """Raise levels, all or none; raise `LevelRefusedError` if one cannot be used."""

    async def decide(base: ChangeBase) -> Decision[None]:
        writes = decide_levels(base, wanted)
        is_done = writes is None or validate_only
        return Decision(None if is_done or writes is None else (writes,), lambda: None)

    await metadata.carry_out("raise the levels of features", decide)
