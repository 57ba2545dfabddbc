"""Boolean settings as clients write them."""

import pytest

from penstock.core.setting_text import is_true


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), (" TRUE\t", True), ("false", False), ("", False), ("1", False), (None, False)],
)
def test_spaces_and_capitals_do_not_count(text: str | None, expected: bool) -> None:
    assert is_true(text) is expected
