"""Decision to forget a broker for ever: it left, and will not come back. Pure.

A broker that has registered once stays known, because it may return: explicit assignments may name
it. Its key `nodes/<id>` is deleted only while it is not registered and has no replica. The write
compares both keys of the broker, so a broker that starts meanwhile stays. A partition that another
broker creates at the same moment may name the broker: that is as with a broker that is absent.

Unlike Apache Kafka, a broker that runs or has replicas is not forgotten: there the command takes
the broker out of the in-sync replicas, and its partitions stay under-replicated.
"""

from collections.abc import Iterator

from penstock.cluster import values
from penstock.cluster.configs.drain_setting import DRAIN
from penstock.cluster.controller import GuardedWrites, replacement
from penstock.cluster.image import MetadataImage
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare, Delete
from penstock.core.errors import PolicyViolationError, UnknownBrokerError

PLACES_SHOWN_MAX = 3
"""Partitions that an error names."""


def removal_writes(
    keys: Keys, image: MetadataImage, broker_id: int, guards: tuple[Compare, ...]
) -> GuardedWrites:
    """Return the write that forgets a broker; raise a domain error to reject it.

    Of its settings only the drain goes: a new broker with this id is not drained.
    """
    if broker_id in image.brokers:
        raise PolicyViolationError(
            f"Broker ID {broker_id} is running: move its replicas with `penstock broker remove`, "
            "then stop it."
        )
    node = image.nodes.get(broker_id)
    if node is None:
        raise UnknownBrokerError(f"Broker ID {broker_id} is not currently registered")
    places = list(_places(image, broker_id))
    if places:
        shown = ", ".join(places[:PLACES_SHOWN_MAX])
        more = "" if len(places) <= PLACES_SHOWN_MAX else ", ..."
        raise PolicyViolationError(
            f"Broker ID {broker_id} has {len(places)} replicas ({shown}{more}): move them with "
            "`penstock broker remove`."
        )
    compares = (
        *guards,
        Compare.absent(keys.broker(broker_id)),
        Compare.unchanged(keys.node(broker_id), node.revision),
    )
    forgotten = GuardedWrites(compares, (Delete(keys.node(broker_id)),))
    found = image.broker_settings.get(str(broker_id))
    if found is None or DRAIN not in found.settings:
        return forgotten
    left = {name: text for name, text in found.settings.items() if name != DRAIN}
    undrained = replacement(
        keys.broker_settings(str(broker_id)),
        found.revision,
        values.write_settings(left) if left else None,
        (),
    )
    return GuardedWrites(
        (*compares, *undrained.compares), (*forgotten.operations, *undrained.operations)
    )


def _places(image: MetadataImage, broker_id: int) -> Iterator[str]:
    """Yield the partitions with a replica on the broker."""
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            if broker_id in state.replicas:
                yield f"{topic.name}-{index}"
    for topic_id, partitions in image.unpublished.items():
        for index, state in partitions.items():
            if broker_id in state.replicas:
                yield f"{topic_id}-{index}"
