"""A client of the push protocol: subscribe, acknowledge, publish."""

from penstock.client.push.push_client import PushClient
from penstock.client.push.push_opening import open_push
from penstock.client.push.push_subscription import PushSubscription
from penstock.client.push.push_values import (
    PublishedRecord,
    PushClosedError,
    PushEvent,
    PushReady,
    PushRecord,
    PushRequestError,
    PushReset,
)

__all__ = [
    "PublishedRecord",
    "PushClient",
    "PushClosedError",
    "PushEvent",
    "PushReady",
    "PushRecord",
    "PushRequestError",
    "PushReset",
    "PushSubscription",
    "open_push",
]
