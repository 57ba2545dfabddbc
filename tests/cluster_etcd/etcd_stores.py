"""Stores on a real etcd for tests: opened at once, closed at the end of the block."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from penstock.cluster.etcd.etcd_options import EtcdOptions, parse_endpoint
from penstock.cluster.etcd.etcd_store import EtcdMetadataStore
from penstock.security.secret import Secret


def options(urls: Sequence[str], *, first_member: int = 0, login: str = "") -> EtcdOptions:
    """Options for these addresses; `login` is `user:password`."""
    user, _, password = login.partition(":")
    return EtcdOptions(
        tuple(parse_endpoint(url) for url in urls),
        user=user,
        password=Secret(password) if user else None,
        first_member=first_member,
    )


@asynccontextmanager
async def store_of(
    urls: Sequence[str], *, first_member: int = 0, login: str = ""
) -> AsyncIterator[EtcdMetadataStore]:
    """Yield a store that has not talked to etcd yet."""
    store = EtcdMetadataStore(options(urls, first_member=first_member, login=login))
    try:
        yield store
    finally:
        await store.close()
