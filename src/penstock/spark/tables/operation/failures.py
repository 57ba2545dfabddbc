"""Classifies the failures of a pipeline: may it pass, and which word names it (pure).

Guarantees: every exception has one class. A failure that a person must correct cannot pass: a wrong
definition, another driver, a recreated topic, a refused table, too many bad records. Brokers,
stores, catalogs, conflicts and Spark may recover. Errors of Penstock that are not listed cannot
pass, because their texts ask for an action; errors of other libraries may.

Errors of Spark's other processes arrive as text. Their text begins with the name of the class,
which is looked up here.
"""

import re
from dataclasses import dataclass
from typing import Final

from penstock.core.errors import (
    AnswerLostError,
    AuthenticationError,
    BrokerAnswerError,
    BrokerUnreachableError,
    ConfigError,
    PenstockError,
    TlsHandshakeError,
)
from penstock.spark.errors import OptionError, SparkQueryError
from penstock.spark.tables.commit.stops import CommitStoppedError, StopReason
from penstock.spark.tables.definition.errors import DefinitionError, SchemaError
from penstock.spark.tables.files.storages import StoreError
from penstock.spark.tables.formats.catalog_problems import CatalogError
from penstock.spark.tables.formats.port import AnswerLostError as CommitAnswerLostError
from penstock.spark.tables.formats.port import TableError, TableMovedError
from penstock.spark.tables.formats.secrets import SecretFileError
from penstock.spark.tables.values.registry import RegistryError

BROKERS: Final = "brokers"
STORAGE: Final = "storage"
CONFLICT: Final = "conflict"
SPARK: Final = "spark"
REGISTRY: Final = "registry"
DEFINITION: Final = "definition"
ACCESS: Final = "access"
REPLACED: Final = "replaced"
OFFSETS: Final = "offsets"
TABLE: Final = "table"
DATA: Final = "data"
BUG: Final = "bug"
WORDS: Final = (
    *(BROKERS, STORAGE, CONFLICT, SPARK, REGISTRY),
    *(DEFINITION, ACCESS, REPLACED, OFFSETS, TABLE, DATA, BUG),
)
"""Every class of failures; metrics have one series for each."""
MAY_PASS: Final = frozenset({BROKERS, STORAGE, CONFLICT, SPARK, REGISTRY})

_STOPS: Final = {
    StopReason.BUSY: CONFLICT,
    StopReason.CHANGED_BATCH: DEFINITION,
    StopReason.FENCED: REPLACED,
    StopReason.FORGOTTEN: REPLACED,
    StopReason.TOO_MANY_PIPELINES: TABLE,
    StopReason.WENT_BACK: TABLE,
}
"""All other stops are about offsets."""
_KINDS: Final[tuple[tuple[type[BaseException], str], ...]] = (
    (AuthenticationError, ACCESS),
    (TlsHandshakeError, ACCESS),
    (BrokerUnreachableError, BROKERS),
    (AnswerLostError, BROKERS),
    (CatalogError, STORAGE),
    (StoreError, STORAGE),
    (SecretFileError, STORAGE),
    (RegistryError, REGISTRY),
    (TableMovedError, CONFLICT),
    (CommitAnswerLostError, CONFLICT),
    (TableError, TABLE),
    (DefinitionError, DEFINITION),
    (SchemaError, DEFINITION),
    (OptionError, DEFINITION),
    (ConfigError, DEFINITION),
)
_BY_NAME: Final = {
    # These classes need Spark, or reach this process only as text.
    "CommitConflictError": CONFLICT,
    "PipelineStoppedError": SPARK,
    "SparkFailedError": SPARK,
    "SessionFailedError": SPARK,
    "ConnectFailedError": SPARK,
    "CircuitOpenError": DATA,
    "ExpectationFailedError": DATA,
    "RowRefusedError": DATA,
    "CommitStoppedError": OFFSETS,
    "DataLossError": OFFSETS,
    "TopicRecreatedError": OFFSETS,
    "CheckpointError": OFFSETS,
    "SubscriptionError": DEFINITION,
    **{kind.__name__: word for kind, word in _KINDS},
}
_BUGS: Final = (AssertionError, TypeError, AttributeError, NameError, LookupError, ArithmeticError)
_NAMED: Final = re.compile(r"\b([A-Z][A-Za-z]*Error): ")


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure of a pipeline."""

    word: str
    """One of `WORDS`."""
    text: str

    @property
    def may_pass(self) -> bool:
        """Whether the same pipeline may run again without any change."""
        return self.word in MAY_PASS


def failure_of(error: BaseException) -> Failure:
    """Return the class of an error that ended a pipeline."""
    return Failure(_word(error), str(error) or type(error).__name__)


def _word(error: BaseException) -> str:
    if isinstance(error, CommitStoppedError):
        return _STOPS.get(error.reason, OFFSETS)
    if isinstance(error, BrokerAnswerError):
        return ACCESS if error.name.endswith("AUTHORIZATION_FAILED") else BROKERS
    found = next((word for kind, word in _KINDS if isinstance(error, kind)), None)
    if found is None:
        names = [kind.__name__ for kind in type(error).__mro__]
        found = next((_BY_NAME[name] for name in names if name in _BY_NAME), None)
    if found == SPARK:
        return _word_in(str(error))
    if found is not None:
        return found
    if isinstance(error, SparkQueryError | PenstockError):
        return DATA
    return BUG if isinstance(error, _BUGS) else STORAGE


def _word_in(text: str) -> str:
    """Return the class of a failure that Spark reports as text."""
    for name in _NAMED.findall(text):
        if name in _BY_NAME and _BY_NAME[name] != SPARK:
            return _BY_NAME[name]
    return SPARK
