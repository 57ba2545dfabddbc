"""The cluster's secret for logins: created once, kept in the store, shared by all brokers.

It derives the salts of unknown users (`security.sasl.scram_server`): a salt that changed with a
restart would show that a user does not exist. The key is not in an image.
"""

import contextlib
import secrets
from typing import Final

from penstock.cluster.keys import DEFAULT_ROOT, Keys
from penstock.cluster.stores.port import Compare, MetadataStore, Put
from penstock.core.errors import AmbiguousStoreError, StoreError
from penstock.core.limits import METADATA_ATTEMPTS_MAX
from penstock.security.secret import Secret

SECRET_BYTES: Final = 32


async def login_secret(store: MetadataStore, root: str = DEFAULT_ROOT) -> Secret:
    """Return the secret; create it if the cluster has none.

    A broker reads it before it registers, so the write compares no registration: it creates the key
    once, and never changes it.
    """
    key = Keys(root).login_secret()
    fresh = secrets.token_hex(SECRET_BYTES).encode()
    for _ in range(METADATA_ATTEMPTS_MAX):
        found = (await store.read(key)).values
        if found:
            return Secret(found[0].value.decode())
        with contextlib.suppress(AmbiguousStoreError):
            await store.transact([Compare.absent(key)], [Put(key, fresh)])
    raise StoreError("the secret of logins could not be created: the store took no write")
