"""The options `segments`, `segments.url` and `segments.path` of the source (pure).

    segments        auto: leased files where they can be read, else Fetch (default)
                    off: Fetch only
                    only: sealed segments must be leased; a reason against it is an error
    segments.url    the admin port of the broker, such as http://127.0.0.1:8080
    segments.path   its data directory as driver and executors see it; default: its own path

Without `segments.url`, `auto` reads through Fetch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final
from urllib.parse import urlsplit

from penstock.spark.errors import OptionError
from penstock.spark.option_values import read_choice, require_short, shown

SEGMENTS: Final = "segments"
SEGMENTS_URL: Final = "segments.url"
SEGMENTS_PATH: Final = "segments.path"
NAMES: Final = (SEGMENTS, SEGMENTS_PATH, SEGMENTS_URL)


class SegmentsUse(Enum):
    """Whether sealed segments are read as files."""

    AUTO = "auto"
    OFF = "off"
    ONLY = "only"


@dataclass(frozen=True, slots=True)
class SealedOptions:
    """Where sealed segments are, and whether they are used."""

    use: SegmentsUse = SegmentsUse.AUTO
    url: str | None = None
    path: str | None = None

    @property
    def is_on(self) -> bool:
        """Whether a lease is asked for."""
        return self.use is not SegmentsUse.OFF and self.url is not None


def read_sealed_options(options: Mapping[str, str], *, cuts_by_records: bool) -> SealedOptions:
    """Return the options; `options` has names in lower case. Raise `OptionError`."""
    use = SegmentsUse(read_choice(SEGMENTS, options.get(SEGMENTS, "auto"), ("auto", "off", "only")))
    url = options.get(SEGMENTS_URL)
    path = options.get(SEGMENTS_PATH)
    if url is not None:
        url = _url(require_short(SEGMENTS_URL, url).strip())
    if path is not None:
        path = _path(require_short(SEGMENTS_PATH, path))
    if url is None and use is SegmentsUse.ONLY:
        raise OptionError(
            SEGMENTS,
            "only needs the admin port of the broker.",
            "Set segments.url, such as http://127.0.0.1:8080, or segments to auto.",
        )
    if url is None and path is not None:
        raise OptionError(
            SEGMENTS_PATH, "it has no effect without segments.url.", "Set segments.url, too."
        )
    if cuts_by_records and use is SegmentsUse.ONLY:
        raise OptionError(
            SEGMENTS,
            "only cannot be set together with maxRecordsPerPartition: segments are split by bytes.",
            "Set maxBytesPerPartition or minPartitions instead.",
        )
    if cuts_by_records:
        use = SegmentsUse.OFF
    return SealedOptions(use, url, path)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        is_url = (
            parts.scheme in {"http", "https"}
            and bool(parts.hostname)
            and parts.port != 0
            and "@" not in parts.netloc
            and not parts.query
            and not parts.fragment
        )
    except ValueError:  # a port that is not a number, or an unpaired bracket
        is_url = False
    if not is_url or not text.isascii() or not text.isprintable() or " " in text:
        raise OptionError(
            SEGMENTS_URL,
            f"{shown(text)} is not the URL of an admin port, without user and password.",
            "Set one such as http://127.0.0.1:8080; the user is that of kafka.sasl.*.",
        )
    return text


def _path(text: str) -> str:
    if not text.startswith("/") or "\0" in text or ".." in text.split("/"):
        raise OptionError(
            SEGMENTS_PATH,
            f"{shown(text)} is not an absolute path.",
            "Set the data directory of the broker, as driver and executors see it.",
        )
    return text.rstrip("/") or "/"
