"""Uses, ignores or rejects Kafka's own settings among the options (`kafka.*`), by tables (pure).

`consumer_settings` has the tables of the source and `producer_settings` those of the sink. Every
setting of Kafka is in one of three: settings that are used, settings without an effect here (with
the reason, for a warning), and settings that would cause wrong results (with the remedy). A name in
none of the tables is rejected: it is most often a typing error. The client receives the security
settings and checks them itself.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.client.security.options import SECURITY_SETTINGS
from penstock.spark.errors import OptionError

PREFIX: Final = "kafka."

TO_CLIENT: Final = frozenset(
    {"bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms"}
)
"""Settings of the connection."""
OF_SECURITY: Final = ("security.", "ssl.", "sasl.")
"""Prefixes of names that the client checks, known or not."""


@dataclass(frozen=True, slots=True)
class SettingTables:
    """The settings of Kafka's consumer, or of its producer."""

    whose: str
    used: frozenset[str]
    without_effect: Mapping[str, str]
    """Ignored settings, with the reason."""
    refused: Mapping[str, str]
    """Rejected settings, with the remedy."""

    def split(self, options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str], list[str]]:
        """Return Kafka's settings among the options: the client's, the used ones, and warnings.

        Names in `options` are in lower case, as Kafka's are; the prefix is removed.
        """
        to_client: dict[str, str] = {}
        used: dict[str, str] = {}
        warnings = []
        for option, text in sorted(options.items()):
            if not option.startswith(PREFIX):
                continue
            name = option.removeprefix(PREFIX)
            if name in TO_CLIENT or name in SECURITY_SETTINGS or name.startswith(OF_SECURITY):
                to_client[name] = text
            elif name in self.used:
                used[name] = text
            elif name in self.without_effect:
                warnings.append(f"option '{option}' has no effect: {self.without_effect[name]}.")
            elif name in self.refused:
                raise OptionError(option, "it cannot be set.", self.refused[name])
            else:
                raise self._unknown(option, name)
        return to_client, used, warnings

    def _unknown(self, option: str, name: str) -> OptionError:
        known = {
            *TO_CLIENT,
            *self.used,
            *self.without_effect,
            *self.refused,
            *SECURITY_SETTINGS,
        }
        close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
        remedy = (
            f"Did you mean '{PREFIX}{close[0]}'?" if close else "Remove it, or see Kafka's names."
        )
        return OptionError(option, f"Kafka's {self.whose} has no such setting.", remedy)
