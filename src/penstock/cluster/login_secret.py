"""The cluster's secret for logins: created once, kept in the store, shared by all brokers.

It derives the salts of unknown users (`security.sasl.scram_server`): a salt that changed with a
restart would show that a user does not exist. The key is not in an image.
"""

import secrets
from typing import Final

from penstock.cluster.keys import DEFAULT_ROOT, Keys
from penstock.cluster.stores.port import Compare, MetadataStore, Put
from penstock.security.secret import Secret

SECRET_BYTES: Final = 32
_KEY: Final = Keys(DEFAULT_ROOT).login_secret()


async def login_secret(store: MetadataStore) -> Secret:
    """Return the secret; create it if the cluster has none."""
    fresh = secrets.token_hex(SECRET_BYTES).encode()
    await store.transact([Compare.absent(_KEY)], [Put(_KEY, fresh)])
    (kept,) = (await store.read(_KEY)).values
    return Secret(kept.value.decode())
