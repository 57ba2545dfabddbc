"""Runs one watch: opens streams where `WatchState` says, and yields its batches.

Guarantees: the watch goes on over lost connections, hung members and expired tokens, for as long as
etcd keeps the changes; it ends when the store closes. A member that sends nothing for
`WATCH_SILENCE_SECONDS`, although it was asked, is left. While no member can be reached, the reader
waits, and gets no error: keep-alives report an unreachable etcd.

The rules are in `watch_state`.
"""

import asyncio
from collections.abc import AsyncIterator

from penstock.cluster.etcd.etcd_channels import AttemptError, WatchStream
from penstock.cluster.etcd.etcd_client import EtcdClient, understood
from penstock.cluster.etcd.etcd_messages import (
    WatchMessage,
    prefix_range,
    read_watch,
    watch_create_request,
)
from penstock.cluster.etcd.member_rotation import Place
from penstock.cluster.etcd.watch_state import WatchAction, WatchState
from penstock.cluster.stores.port import EventBatch
from penstock.core.errors import StoreError


async def watch(client: EtcdClient, state: WatchState, prefix: str) -> AsyncIterator[EventBatch]:
    """Yield the changes of a prefix."""
    while not client.is_closed():
        pause = client.rotation.pause_seconds(state.failures)
        if pause:
            await asyncio.sleep(pause)
            if client.is_closed():
                return
        place = client.rotation.place
        stream = None
        action = WatchAction.READ
        try:
            stream = await _open(client, state, place, prefix)
            while action is WatchAction.READ:
                step = state.take(await _message(client, stream))
                for batch in step.batches:
                    client.guard.saw_revision(batch.revision)
                    yield batch
                action = step.action
        except AttemptError as error:
            if client.is_closed():
                return
            action = state.failed(error.fault)
        finally:
            if stream is not None:
                client.forget(stream)
        if action is WatchAction.AUTHENTICATE:
            await _authenticate(client, state, place)
        else:
            client.leave(place)


async def _open(client: EtcdClient, state: WatchState, place: Place, prefix: str) -> WatchStream:
    state.opening()
    key, end = prefix_range(prefix)
    request = watch_create_request(key, end, state.next_revision)
    return await client.open_watch(place, request)


async def _message(client: EtcdClient, stream: WatchStream) -> WatchMessage:
    message = understood(read_watch, await stream.read())
    if client.guard.is_foreign(message.header):
        raise StoreError(
            f"a watch was answered by the etcd cluster {message.header.cluster_id:x}, and earlier "
            f"calls by {client.guard.cluster_id:x}: check that all addresses in `cluster.etcd` "
            "belong to one etcd, and that it was not created again"
        )
    return message


async def _authenticate(client: EtcdClient, state: WatchState, place: Place) -> None:
    try:
        await client.renew_token(place)
    except AttemptError as error:
        state.authentication_failed(error.fault)
        client.leave(place)
    else:
        state.authenticated()
