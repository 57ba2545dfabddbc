"""The pipes of a broker, as its admin port shows them, and the text of a pipe."""

from typing import Final

from penstock.cli.admin_port import AdminResource, Document, open_admin_port
from penstock.core.quantities import printable

PATH: Final = "/api/v1/pipes"


def open_pipes(url: str, timeout_seconds: float) -> AdminResource:
    """Return the pipes of the broker with this admin port."""
    return open_admin_port(url, timeout_seconds).resource(PATH)


def text(document: Document, name: str) -> str:
    """Return a text of an answer, without control characters."""
    return printable(str(document.get(name, "")))


def duration(seconds: object) -> str:
    """Return a time in words, such as `2 h 5 min`."""
    if not isinstance(seconds, int | float):
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 172_800:
        return f"{whole // 3_600} h {whole % 3_600 // 60} min"
    return f"{whole // 86_400} days"
