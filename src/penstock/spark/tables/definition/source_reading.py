"""The options of a pipeline's source for the process that connects: references are resolved.

Guarantees: each call reads variables and files anew, in the process that calls. Options in a
definition, in the plan of a query and in its checkpoint have the references only
(`source_references`); the result has the values, also in a task that is sent with it. References
are resolved in texts of the login (`RESOLVED`). Other options stay as they are: a reference there
is an error of the definition.
"""

from collections.abc import Mapping
from typing import Final

from penstock.spark.kafka_settings import PREFIX
from penstock.spark.source.options import Mode, SourceOptions, read_source_options
from penstock.spark.tables.definition import references
from penstock.spark.tables.definition.source_references import RESOLVED

_SECTION: Final = "source.options"


def read_resolved_options(given: Mapping[str, str], mode: Mode) -> SourceOptions:
    """Return the options of a source; raise `SecretError` for a reference without a value."""
    names = {name for name in given if name.lower().removeprefix(PREFIX) in RESOLVED}
    # The space around a reference is allowed and not a part of the secret.
    secured = references.resolved(_SECTION, {name: given[name].strip() for name in sorted(names)})
    return read_source_options({**given, **secured}, mode)
