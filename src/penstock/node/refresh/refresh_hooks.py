"""`RefreshHooks`: connects the admin port with the parts that refresh subscribers.

A broker without push has an empty list, and a request to refresh reaches no subscriber.
"""

from collections.abc import Callable

SendRefresh = Callable[[str, str | None], int]
"""Begins refreshes of the subscribers of a topic and a group; returns their number."""


class RefreshHooks:
    """The parts that refresh subscribers."""

    __slots__ = ("_senders",)

    def __init__(self) -> None:
        self._senders: list[SendRefresh] = []

    def add(self, send: SendRefresh) -> None:
        """Call `send` for each requested refresh."""
        self._senders.append(send)

    def send(self, topic: str, group: str | None) -> int:
        """Refresh the subscribers of a topic, or those of a group; return their number."""
        return sum(send(topic, group) for send in self._senders)
