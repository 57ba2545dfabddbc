"""Decisions about the registration of a broker. Pure.

The key `nodes/<id>` has the broker's data directory. Its revision says since when the disk has kept
everything that the broker reported as durable: an older entry of the broker among the in-sync
replicas is not valid. So a registration writes the key anew if, and only if, such things may be
gone: another data directory, or an unclean stop in a flush mode that syncs later.

No broker registers while the metadata is moved out of the store (`cluster.transfer`).
"""

from penstock.cluster import values
from penstock.cluster.controller import GuardedWrites
from penstock.cluster.features.levels import unsupported_level
from penstock.cluster.image import BrokerImage
from penstock.cluster.keys import Keys
from penstock.cluster.stores.port import Compare, KeyValue, Operation, Put
from penstock.core.errors import DuplicateBrokerError, StoreError
from penstock.core.types import CLUSTER_LISTENER


def check_takeover(broker: BrokerImage, registered: BrokerImage) -> None:
    """Raise an error if the registration belongs to another data directory."""
    if registered.directory_id != broker.directory_id:
        raise DuplicateBrokerError(
            f"broker id {broker.id} is in use by {registered.endpoints[0]}; "
            "give this broker another id, or stop the other one"
        )


def is_elsewhere(broker: BrokerImage, registered: BrokerImage) -> bool:
    """Return whether the registered broker of a cluster has none of the addresses of this one.

    This one listens at its addresses, so a process with one of them has ended. A broker alone has
    its store in its data directory: there is no other.
    """
    if broker.endpoint(CLUSTER_LISTENER) is None:
        return False
    return not {*broker.endpoints} & {*registered.endpoints}


def duplicate_directory(broker: BrokerImage, registered: BrokerImage) -> DuplicateBrokerError:
    """Return the error of a broker whose data directory is in use elsewhere."""
    return DuplicateBrokerError(
        f"broker {broker.id} runs at {registered.endpoints[0]} with the same data directory id: "
        "the data directory of this one is a copy",
        hint="Stop the other broker, or start this one with an empty data directory and another "
        "node.id.",
    )


def decide_registration(
    keys: Keys,
    broker: BrokerImage,
    session: int,
    *,
    node: KeyValue | None,
    features: KeyValue | None,
    may_have_lost: bool,
) -> GuardedWrites:
    """Return the write that registers a broker; the revision of the write is the broker's epoch.

    `node` and `features` are the present values of these keys. `may_have_lost`: records that the
    broker reported as durable may be gone. Raises an error if the cluster uses newer features.
    """
    if features is not None:
        problem = unsupported_level(values.read_features(features.value), broker.features)
        if problem is not None:
            raise StoreError(problem)
    key, node_key = keys.broker(broker.id), keys.node(broker.id)
    compares = (
        Compare.absent(key),
        Compare.absent(keys.transfer()),
        Compare.unchanged(node_key, 0 if node is None else node.mod_revision),
        Compare.unchanged(keys.features(), 0 if features is None else features.mod_revision),
    )
    operations: tuple[Operation, ...] = (Put(key, values.write_broker(broker), session),)
    is_other = node is None or _directory(node) != broker.directory_id
    if is_other or may_have_lost:
        operations += (Put(node_key, values.write_node(broker.directory_id)),)
    return GuardedWrites(compares, operations)


def _directory(node: KeyValue) -> str:
    return values.read_node(node.value, node.mod_revision).directory_id
