"""Failures of a pipeline in the words of its file: the file, the key, the reason and the remedy.

What is below speaks of options of a source and of the client; whoever wrote a definition knows its
keys. A wrong setting ends a command with the exit code for wrong settings. Spark's own modules are
loaded when something failed, not before.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.core.errors import BrokerUnreachableError, ConfigError, PenstockError


class PipelineBrokerError(BrokerUnreachableError):
    """None of the brokers of a definition answers."""


@contextmanager
def told_of(file: str) -> Iterator[None]:
    """Inside, errors name this file and its keys."""
    try:
        yield
    except BrokerUnreachableError as error:
        raise PipelineBrokerError(
            f"{error}\nStart it, or correct pipeline.bootstrap_servers in {file}."
        ) from error
    except PenstockError as error:
        from penstock.spark.tables.definition.errors import DefinitionError, as_written

        told = as_written(error, file)
        if isinstance(told, DefinitionError):
            raise ConfigError(str(told)) from error
        if told is error:
            raise
        raise told from error
