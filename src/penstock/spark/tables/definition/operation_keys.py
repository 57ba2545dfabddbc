"""Reads the keys of a definition about its operation: metrics, group, lineage (pure).

Guarantees: a port is in its range, a group's name is one that brokers accept, and a destination of
lineage is a file or an address. Nothing is opened here.
"""

from typing import Final
from urllib.parse import urlsplit

from penstock.spark.option_values import shown
from penstock.spark.tables.definition.model import OperationSettings
from penstock.spark.tables.definition.values import Section

PORT_MAX: Final = 65_535
GROUP_CHARACTERS_MAX: Final = 249
"""As long as the longest name of a topic."""
LINEAGE_REMEDY: Final = (
    'Write lineage = "file:///var/log/penstock/lineage.jsonl" or lineage = "https://host:5000".'
)


def read_operation(section: Section) -> OperationSettings:
    """Return the settings of the section `pipeline` that only its operation needs."""
    group = section.optional_text("publish_group", '"table-orders"')
    if group is not None and (len(group) > GROUP_CHARACTERS_MAX or not group.isprintable()):
        section.fail(
            "publish_group",
            f"{shown(group)} cannot be the name of a group.",
            f"Use up to {GROUP_CHARACTERS_MAX} printable characters.",
        )
    lineage = section.optional_text("lineage", '"file:///var/log/penstock/lineage.jsonl"')
    if lineage is not None and not is_lineage_address(lineage):
        section.fail("lineage", f"{shown(lineage)} is not a file or an address.", LINEAGE_REMEDY)
    port = section.integer("metrics_port", 0, lowest=1, highest=PORT_MAX)
    host = section.optional_text("metrics_host", '"127.0.0.1"')
    if host is not None and not port:
        section.fail("metrics_host", "metrics_port is not set.", "Set it, or remove metrics_host.")
    return OperationSettings(port, host or OperationSettings().metrics_host, group, lineage)


def is_lineage_address(text: str) -> bool:
    """Return whether lineage events can be sent to this URL: a local file, or HTTP."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    if parts.scheme == "file":
        return not parts.netloc and parts.path.startswith("/") and not parts.path.endswith("/")
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.username is None
