"""The features of the cluster as clients see them: their supported levels and the levels in use.

Clients use transaction version 2, the consumer protocol of KIP-848 and share groups (KIP-932) only
if these are listed; their levels never change while a broker runs. A broker without share groups
(`groups.share_enabled`) has level 0 of theirs. `metadata.version` is not here: it says which
records Kafka's controllers write, and there are none. A cluster of several brokers also has the
features of its metadata (`cluster.features`), whose levels are raised when every broker supports
them.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.broker.context import BrokerServices

LEVELS: Final[dict[str, int]] = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""Highest level by feature; it is the level in force."""
LOWEST_LEVEL: Final = 0
"""The lowest supported level in ApiVersions."""
_FIXED_EPOCH: Final = 0
"""The levels never change, so one epoch is enough; clients need one that is not negative."""


class Feature(NamedTuple):
    """One feature of this broker."""

    lowest: int
    highest: int
    level: int
    """The level in use, 0 for none."""


FIXED: Final[Mapping[str, Feature]] = {
    name: Feature(LOWEST_LEVEL, level, level) for name, level in LEVELS.items()
}
"""The features of a broker alone."""
WITHOUT_SHARES: Final[Mapping[str, Feature]] = {
    **FIXED,
    "share.version": FIXED["share.version"]._replace(level=0),
}
"""The same without share groups."""


def features_of(services: BrokerServices) -> Mapping[str, Feature]:
    """Return the features of this broker by name."""
    fixed = FIXED if services.shares is not None else WITHOUT_SHARES
    if services.elections is None:
        return fixed
    image = services.metadata.image
    broker = image.brokers.get(services.node_id)
    levels = image.features.levels
    return {
        **fixed,
        **{
            one.name: Feature(one.lowest, one.highest, levels.get(one.name, 0))
            for one in (() if broker is None else broker.features)
        },
    }


def features_epoch(services: BrokerServices) -> int:
    """Return a number that rises when a level changes."""
    if services.elections is None:
        return _FIXED_EPOCH
    return services.metadata.image.features.revision
