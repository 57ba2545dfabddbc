"""Settings of topics and groups on the command line: NAME=VALUE in, documents and tables out.

`penstock topic` and `penstock group` share it, so both accept and show settings in the same format.
Fields of the documents are part of the interface: fields are added, never removed. It connects to
no broker.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click

from penstock.cli.output import print_table
from penstock.client.setting_sources import source_text
from penstock.protocol.messages.describe_configs import DescribeConfigsResourceResult


def parse_settings(texts: Sequence[str], where: str) -> dict[str, str]:
    """Parse each NAME=VALUE; `where` is the option or argument for error messages."""
    settings = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name:
            raise click.BadParameter(f"{text!r} is not NAME=VALUE.", param_hint=where)
        settings[name] = value
    return settings


def parse_edits(settings: Sequence[str], deleted: Sequence[str]) -> dict[str, str | None]:
    """Return the changes: values, and None for settings that return to their default."""
    edits: dict[str, str | None] = {**parse_settings(settings, "SETTINGS")}
    for name in deleted:
        if name in edits:
            raise click.UsageError(f"{name} is both set and deleted; leave one of them out.")
        edits[name] = None
    if not edits:
        raise click.UsageError("Nothing to change: give NAME=VALUE or --delete NAME.")
    return edits


def changed_line(name: str, edits: Mapping[str, str | None]) -> str:
    """Return a line that reports the changed settings."""
    count = len(edits)
    return f"{name}: {count} setting{'' if count == 1 else 's'} changed"


def setting_documents(configs: Iterable[DescribeConfigsResourceResult]) -> list[dict[str, Any]]:
    """Return every setting with its value and its source, sorted by name."""
    return [
        {
            "name": config.name,
            "value": config.value,
            "source": source_text(config.config_source),
        }
        for config in sorted(configs, key=lambda config: config.name)
    ]


def print_settings(documents: Iterable[Mapping[str, Any]]) -> None:
    """Print a table of settings without their default; nothing if all have it."""
    rows = [[c["name"], c["value"], c["source"]] for c in documents if c["source"] != "default"]
    if rows:
        print_table(["setting", "value", "from"], rows)
