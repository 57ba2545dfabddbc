"""Errors of consumers. An error of a handler is not one: it is retried or becomes a dead letter."""

from penstock.core.errors import PenstockError


class ConsumerError(PenstockError):
    """A consumer cannot run, or cannot continue."""


class ConsumerStoppedError(ConsumerError):
    """A consumer stopped because of a record; its offset is not committed."""


class ConsumerExtraMissingError(ConsumerError):
    """The package confluent-kafka is not installed, or is too old for the request."""


class RecordWriteError(ConsumerError):
    """A record for a retry topic or a dead-letter topic was not acknowledged by the broker."""
