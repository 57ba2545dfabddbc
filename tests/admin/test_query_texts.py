"""Texts of a query that look like numbers stay texts where the model wants a text."""

from typing import Annotated

import pytest
from pydantic import Field

from penstock.admin.model import Input
from penstock.admin.parsing import read_parameters
from penstock.admin.problems import RefusedError

Name = Annotated[str, Field(max_length=5)]


class Query(Input):
    name: Name | None = None
    other: str = ""
    limit: int = 0


def test_a_text_of_digits_is_a_text() -> None:
    found = read_parameters(Query, {"name": "0", "other": "true", "limit": "7"}, "query")
    assert found == Query(name="0", other="true", limit=7)


def test_bounds_of_a_text_hold() -> None:
    with pytest.raises(RefusedError, match="at most 5 characters"):
        read_parameters(Query, {"name": "123456"}, "query")
