"""The lines of the audit log, and denials that happen again and again."""

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.security.audit import (
    DENIALS_MAX,
    REPEAT_SECONDS,
    TEXT_MAX,
    AuditEvent,
    RepeatedDenials,
    line_of,
)

TIME = "2026-11-17T12:00:00.000+00:00"


def denied(principal: str = "User:alice", resource: str = "TOPIC:t") -> AuditEvent:
    return AuditEvent("denied", principal=principal, resource=resource, operation="READ")


@given(name=st.text())
def test_a_name_is_one_json_text_on_one_line(name: str) -> None:
    line = line_of(denied(principal=name), TIME)
    assert len(line.splitlines()) == 1
    document = json.loads(line)
    assert document["time"] == TIME
    assert document.get("principal", "")[:TEXT_MAX] == name[:TEXT_MAX]


def test_a_long_name_is_cut() -> None:
    document = json.loads(line_of(denied(resource="TOPIC:" + "x" * 10_000), TIME))
    assert len(document["resource"]) == TEXT_MAX + 1


def test_the_first_denial_is_written_and_repeats_are_counted() -> None:
    denials = RepeatedDenials()
    assert list(denials.take(denied(), 0.0)) == [denied()]
    for number in range(1_000):
        assert list(denials.take(denied(), number / 1_000)) == []
    (counted,) = denials.due(REPEAT_SECONDS)
    assert (counted.count, counted.principal, counted.reason) == (1_000, "User:alice", "repeated")
    assert list(denials.due(2 * REPEAT_SECONDS)) == []
    assert list(denials.take(denied(), REPEAT_SECONDS)) == [denied()]


def test_another_principal_resource_or_operation_is_another_denial() -> None:
    denials = RepeatedDenials()
    for event in (denied(), denied(principal="User:bob"), denied(resource="TOPIC:u")):
        assert list(denials.take(event, 0.0)) == [event]


def test_a_denial_that_happened_once_leaves_no_count() -> None:
    denials = RepeatedDenials()
    list(denials.take(denied(), 0.0))
    assert list(denials.all()) == []


def test_counts_are_bounded_and_none_is_lost() -> None:
    denials = RepeatedDenials()
    written = 0
    for number in range(DENIALS_MAX + 10):
        for _ in range(2):
            events = denials.take(denied(principal=f"User:{number}"), 0.0)
            written += sum(event.count for event in events)
    assert len(denials._known) <= DENIALS_MAX
    written += sum(event.count for event in denials.all())
    assert written == 2 * (DENIALS_MAX + 10)
