"""Which errors of the libraries of the formats may pass: an unreachable store, expired keys.

The libraries raise the errors of their drivers: of HTTP, of a database, of an object store. Their
classes are compared by name, so that this module needs none of these libraries.
"""

from typing import Final

from penstock.spark.tables.formats.catalog_problems import reason_of

_PASSING: Final = frozenset(
    {
        "OSError",  # of Arrow, of deltalake, and of `requests`, whose errors inherit from it
        "RESTError",  # of pyiceberg: a catalog that fails, or refuses a token
        "DeltaError",  # of a log that cannot be read
        "OperationalError",  # of a database
        "InterfaceError",
        "TTransportException",  # of a Hive metastore
        "BotoCoreError",
        "ClientError",
    }
)
_LASTING: Final = frozenset(
    {
        "FileNotFoundError",
        "BadRequestError",
        "TableNotFoundError",
        "CommitFailedError",
        "SchemaMismatchError",
        "DeltaProtocolError",
    }
)
"""Errors of these classes do not pass, although their base classes do."""


def passing_reason(error: BaseException) -> str | None:
    """Return the reason, in one line, if the same call may succeed later; None otherwise."""
    names = {one.__name__ for one in type(error).__mro__}
    if names & _LASTING or not names & _PASSING:
        return None
    return reason_of(error)
