"""Errors of a pipeline, reported with its file, the key, the reason and the remedy.

Lower layers name options of a source and of the client, but the author of a definition knows its
keys. A wrong setting ends a command with the exit code for wrong settings. Spark's modules are
imported only after a failure.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.core.errors import BrokerUnreachableError, ConfigError, PenstockError


class PipelineBrokerError(BrokerUnreachableError):
    """No broker of a definition answers."""


class BadRecordsError(PenstockError):
    """Too many of the records are bad."""


_OF_RECORDS: Final = "CircuitOpenError"
"""By name: the commands that raise it are the only ones that import it."""


@contextmanager
def errors_of_definition(file: str) -> Iterator[None]:
    """Add this file and its keys to errors inside the block."""
    try:
        yield
    except BrokerUnreachableError as error:
        raise PipelineBrokerError(
            f"{error}\nStart it, or correct pipeline.bootstrap_servers in {file}."
        ) from error
    except PenstockError as error:
        if type(error).__name__ == _OF_RECORDS:
            raise BadRecordsError(str(error)) from error
        from penstock.spark.tables.definition.errors import DefinitionError, as_written

        reported = as_written(error, file)
        if isinstance(reported, DefinitionError):
            raise ConfigError(str(reported)) from error
        if reported is error:
            raise
        raise reported from error
