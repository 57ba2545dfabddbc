"""The door to confluent-kafka (extra `consumer`): loaded at the first use, with a clear error.

confluent-kafka is the maintained client of librdkafka. Penstock has no group client of its own:
membership, rebalances and fetching are its work. Share groups need version 2.15 or later.
"""

import importlib
from types import ModuleType

from penstock.consumers.errors import ConsumerExtraMissingError

INSTALL = "pip install 'penstock[consumer]'"


def load(part: str = "") -> ModuleType:
    """Return the module confluent_kafka, or its part such as `.admin`; raise if it is missing."""
    try:
        return importlib.import_module("confluent_kafka" + part)
    except ImportError as error:
        raise ConsumerExtraMissingError(
            "consumers need the package 'confluent-kafka', which the broker does without.",
            hint=f"Install it with: {INSTALL}",
        ) from error


def load_share_consumer() -> type:
    """Return the class `ShareConsumer`; raise if the installed version has none."""
    library = load()
    found = getattr(library, "ShareConsumer", None)
    if found is None:
        raise ConsumerExtraMissingError(
            f"mode 'queue' needs confluent-kafka 2.15 or later, installed is "
            f"{getattr(library, '__version__', 'an older version')}.",
            hint=f"Upgrade it with: {INSTALL}",
        )
    assert isinstance(found, type)
    return found
