"""`found_cluster`: creates a cluster in an empty store, once, whichever broker is first."""

import contextlib

from penstock.cluster import controller
from penstock.cluster.keys import Keys
from penstock.cluster.link.followed_image import FollowedImage
from penstock.cluster.stores.port import MetadataStore
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.core.limits import METADATA_ATTEMPTS_MAX


async def found_cluster(
    store: MetadataStore, keys: Keys, followed: FollowedImage, cluster_id: str
) -> None:
    """Create the cluster with this id, unless there is one; its image is loaded then."""
    writes = controller.decide_founding(keys, cluster_id)
    for _ in range(METADATA_ATTEMPTS_MAX):
        with contextlib.suppress(AmbiguousStoreError):
            await store.transact(writes.compares, writes.operations)
        # The cluster exists now, also if another process created it.
        await followed.reload()
        if followed.newest.cluster_id:
            return
    raise StoreError("the cluster could not be founded: the store took no write")
