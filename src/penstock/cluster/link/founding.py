"""`found_cluster`: creates a cluster in an empty store, once, whichever broker is first."""

import contextlib

from penstock.cluster import controller
from penstock.cluster.features.levels import highest_levels
from penstock.cluster.keys import Keys
from penstock.cluster.link.change_values import ClusterRules
from penstock.cluster.link.followed_image import FollowedImage
from penstock.cluster.link.transfer_mark import read_transfer
from penstock.cluster.stores.port import MetadataStore
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.core.limits import METADATA_ATTEMPTS_MAX


async def found_cluster(
    store: MetadataStore,
    keys: Keys,
    followed: FollowedImage,
    cluster_id: str,
    rules: ClusterRules | None = None,
) -> None:
    """Create the cluster with this id, unless there is one; its image is loaded then.

    `rules`: the cluster is for several brokers, and begins with the highest levels of features.
    Raises an error while an import writes the metadata of a broker here.
    """
    levels = None if rules is None else highest_levels(rules.features)
    writes = controller.decide_founding(keys, cluster_id, levels)
    for _ in range(METADATA_ATTEMPTS_MAX):
        with contextlib.suppress(AmbiguousStoreError):
            result = await store.transact(
                writes.compares, writes.operations, read_on_failure=(keys.transfer(),)
            )
            for pair in result.values:
                raise StoreError(read_transfer(pair.value).problem)
        # The cluster exists now, also if another process created it.
        await followed.reload()
        if followed.newest.cluster_id:
            return
    raise StoreError("the cluster could not be founded: the store took no write")
