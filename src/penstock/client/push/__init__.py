"""A client of the push protocol: subscribe, acknowledge, publish."""

from penstock.client.push.push_client import PushClient, open_push
from penstock.client.push.push_subscription import PushSubscription
from penstock.client.push.push_values import (
    PublishedRecord,
    PushClosedError,
    PushRecord,
    PushRequestError,
)

__all__ = [
    "PublishedRecord",
    "PushClient",
    "PushClosedError",
    "PushRecord",
    "PushRequestError",
    "PushSubscription",
    "open_push",
]
