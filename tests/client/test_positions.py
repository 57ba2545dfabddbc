"""Every way a person names a start, and the ways that name none."""

import pytest

from penstock.client.records.positions import Start, parse_start
from penstock.core.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start("earliest")),
        ("latest", Start("latest")),
        ("0", Start("offset", 0)),
        ("1714564800000", Start("offset", 1714564800000)),
        ("-10", Start("before end", 10)),
        ("@1714564800000", Start("timestamp", 1714564800000)),
        ("2024-05-01T12:00:00Z", Start("timestamp", 1714564800000)),
        ("2024-05-01T12:00:00", Start("timestamp", 1714564800000)),
        ("2024-05-01T14:00:00.250+02:00", Start("timestamp", 1714564800250)),
        ("2024-05-01", Start("timestamp", 1714521600000)),
    ],
)
def test_a_start_is_read(text: str, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "first", "@", "@x", "-", "1.5", "--1", "2024-13-01"])
def test_nonsense_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="earliest, latest, an offset"):
        parse_start(text)
