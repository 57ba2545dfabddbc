"""The settings that a command runs with: a file, then the environment, then flags.

One way for `penstock serve` and `penstock config`, so that what the second shows is what the first
uses.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from penstock.core.config import Loaded, load_settings
from penstock.core.errors import ConfigError


def load(file: str | None, flags: Mapping[str, object]) -> Loaded:
    """Read the file, if one is given; a flag that is None counts as not given."""
    text = None
    if file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file} is not UTF-8 text: {error}") from error
    return load_settings(text, os.environ, flags, file or "settings file")
