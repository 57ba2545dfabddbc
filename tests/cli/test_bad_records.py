"""Too many bad records have an exit code of their own: an orchestrator must not try again."""

import pytest

from penstock.cli import exits
from penstock.cli.text.pipeline_words import BadRecordsError, errors_of_definition
from penstock.spark.tables.commit.circuit_breaker import CircuitOpenError


def test_too_many_bad_records_have_an_exit_code() -> None:
    with pytest.raises(BadRecordsError, match="half of them") as raised, errors_of_definition("f"):
        raise CircuitOpenError("half of them")
    assert exits.code_of(raised.value) == 7
    assert exits.explanation(raised.value) == "error: half of them"
