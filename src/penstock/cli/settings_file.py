"""The settings of a command: a file, then the environment, then flags.

`penstock serve` and `penstock config` share it, so the second shows the settings of the first.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.cluster.declared_topics import check_declaration
from penstock.core.errors import ConfigError
from penstock.core.limits import SETTINGS_FILE_BYTES_MAX
from penstock.core.settings.config import Loaded, load_settings


def load(file: str | None, flags: Mapping[str, object]) -> Loaded:
    """Return the settings, read from the file if one is set; a flag of None counts as not set."""
    text = None if file is None else _text(file)
    try:
        return load_settings(
            text, os.environ, flags, file or "settings file", check_topic=check_declaration
        )
    except ConfigError as error:
        if file is not None and file in str(error):
            error.hint = f"Correct the file; `penstock config check {file}` checks it."
        raise


def _text(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(SETTINGS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"the settings file {file} cannot be read: {error.strerror}",
            hint="Check the path and its permissions (--config, PENSTOCK_CONFIG).",
        ) from error
    if len(content) > SETTINGS_FILE_BYTES_MAX:
        raise ConfigError(
            f"{file} is larger than {SETTINGS_FILE_BYTES_MAX} bytes, the most for a settings file",
            hint="Name a settings file with --config (PENSTOCK_CONFIG).",
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is not UTF-8 text: {error}", hint="Save the file as UTF-8."
        ) from error
