"""The features of this version, and the comparison of a level with the supported ones. Pure.

A level is a number that the whole cluster uses: new keys, new versions of values and new requests
between brokers are used starting at a level, never before. Each broker registers the levels that it
supports. A broker that does not support the level in use does not register.

It is not about versions of Kafka's requests: ApiVersions lists these for each broker.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from penstock.core.errors import StoreError

CLUSTER_FEATURE: Final = "penstock.cluster"
"""The layout of the metadata and the requests between brokers. Level 1 is the first."""


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports."""

    name: str
    lowest: int
    highest: int


SUPPORTED: Final = (FeatureRange(CLUSTER_FEATURE, 1, 1),)
"""The features of this version."""

Ranges = tuple[FeatureRange, ...]


def range_of(ranges: Iterable[FeatureRange], name: str) -> FeatureRange | None:
    """Return the levels of this feature; None if it is not supported."""
    return next((one for one in ranges if one.name == name), None)


def highest_levels(ranges: Iterable[FeatureRange]) -> dict[str, int]:
    """Return the levels of a new cluster."""
    return {one.name: one.highest for one in ranges}


def unsupported_level(levels: Mapping[str, int], ranges: Iterable[FeatureRange]) -> str | None:
    """Return why a broker cannot work with these levels; None if it can."""
    known = {one.name: one for one in ranges}
    for name, level in levels.items():
        # A level of 0 is not in use.
        found = known.get(name, FeatureRange(name, 0, 0))
        if found.highest < level:
            remedy = "install a newer Penstock"
        elif 0 < level < found.lowest:
            remedy = f"raise the level with an older Penstock, at most to {found.lowest}, first"
        else:
            continue
        supported = f"{found.lowest} to {found.highest}" if name in known else "no level of it"
        return (
            f"the cluster uses the feature {name} at level {level}; this version supports "
            f"{supported}: {remedy}"
        )
    return None


def read_ranges(listed: object) -> Ranges:
    """Return the levels in a registration: a table of names with the lowest and highest level."""
    if not isinstance(listed, dict):
        raise StoreError("a broker in the metadata store has no table of features")
    found = []
    for name, levels in listed.items():
        if not isinstance(levels, list) or [type(one) for one in levels] != [int, int]:
            raise StoreError(f"the feature {name!r} in the metadata store has no two levels")
        found.append(FeatureRange(name, *levels))
    return tuple(found)
