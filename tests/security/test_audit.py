"""The lines of the audit log, and denials that happen again and again."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.audit import (
    DENIALS_MAX,
    DUE_AT_ONCE,
    LIMIT_SECONDS,
    LINES_MAX,
    LOGIN_FAILED,
    NAMED_MAX,
    REPEAT_SECONDS,
    SUPPRESSED,
    TEXT_MAX,
    WINDOWS_MAX,
    AuditEvent,
    LineLimit,
    RepeatedDenials,
    line_of,
    rule_values,
    user_values,
)

TIME = "2026-11-17T12:00:00.000+00:00"


def denied(
    principal: str = "User:alice", resource: str = "TOPIC:t", address: str = "10.0.0.1"
) -> AuditEvent:
    return AuditEvent(
        "denied", principal=principal, resource=resource, operation="READ", address=address
    )


def login_failed(address: str) -> AuditEvent:
    return AuditEvent(LOGIN_FAILED, address=address)


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


def test_another_principal_address_or_resource_is_another_denial() -> None:
    denials = RepeatedDenials()
    for event in (
        denied(),
        denied(principal="User:bob"),
        denied(resource="TOPIC:u"),
        denied(address="10.0.0.2"),
    ):
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


def test_an_old_count_is_written_before_the_same_denial_begins_again() -> None:
    denials = RepeatedDenials()
    for number in range(2 * DUE_AT_ONCE):
        for _ in range(2):
            list(denials.take(denied(principal=f"User:{number}"), 0.0))
    last = denied(principal=f"User:{2 * DUE_AT_ONCE - 1}")
    written = list(denials.take(last, REPEAT_SECONDS))
    assert sum(one.count for one in written if one.principal == last.principal) == 2


def test_a_client_gets_a_bounded_number_of_lines_and_the_number_of_others() -> None:
    denials = RepeatedDenials()
    lines = [
        one
        for number in range(1_000)
        for one in denials.take(denied(resource=f"TOPIC:{number}"), number / 2_000)
    ]
    assert [one.resource for one in lines] == [f"TOPIC:{number}" for number in range(LINES_MAX)]
    assert len(denials._known) == LINES_MAX
    (summary,) = denials.due(LIMIT_SECONDS)
    assert (summary.event, summary.count) == (SUPPRESSED, 1_000 - LINES_MAX)
    assert (summary.principal, summary.address) == ("User:alice", "10.0.0.1")
    # Another client is not held back, and this one has lines again.
    for event in (denied(principal="User:bob"), denied(resource="TOPIC:again")):
        assert event in list(denials.take(event, LIMIT_SECONDS))


def test_names_that_a_client_only_claims_give_it_no_more_lines() -> None:
    denials = RepeatedDenials()
    written = 0
    for number in range(1_000):
        event = AuditEvent(LOGIN_FAILED, principal=f"User:{number}", address="10.0.0.1")
        written += len(list(denials.take(event, 0.0)))
    assert written == LINES_MAX
    # The limit of this address is not that of a principal at it.
    assert list(denials.take(denied(), 0.0)) == [denied()]


def test_the_addresses_of_one_ipv6_host_give_it_no_more_lines() -> None:
    denials = RepeatedDenials()
    addresses = [f"2001:db8::{number:x}" for number in range(1, 4 * LINES_MAX)]
    for make in (denied, login_failed):
        lines = [one for each in addresses for one in denials.take(make(address=each), 0.0)]
        assert [one.address for one in lines] == addresses[:LINES_MAX]
        other = make(address="2001:db8:0:1::1")
        assert list(denials.take(other, 0.0)) == [other]
    summaries = list(denials.due(LIMIT_SECONDS))
    assert [one.address for one in summaries] == [addresses[LINES_MAX]] * 2
    assert {one.count for one in summaries} == {len(addresses) - LINES_MAX}


def test_another_api_is_another_denial() -> None:
    denials = RepeatedDenials()
    events = [replace(denied(), api=api) for api in ("METRICS", "STATUS")]
    assert [one for event in events for one in denials.take(event, 0.0)] == events


def test_the_limits_themselves_are_bounded() -> None:
    limit = LineLimit()
    for number in range(WINDOWS_MAX + 2 * LINES_MAX):
        limit.allows(denied(principal=f"User:{number}"), 0.0)
    assert len(limit._windows) == WINDOWS_MAX + 1
    (summary,) = [one for _ in range(WINDOWS_MAX) for one in limit.due(LIMIT_SECONDS)]
    assert (summary.count, summary.principal, summary.address) == (LINES_MAX, "", "")
    assert not limit._windows


def test_what_was_not_written_is_counted_at_the_end_too() -> None:
    denials = RepeatedDenials()
    for number in range(LINES_MAX + 3):
        list(denials.take(denied(resource=f"TOPIC:{number}"), 0.0))
    assert [one.count for one in denials.all()] == [3]


def test_changed_rules_and_users_are_named_up_to_a_bound() -> None:
    rule = AclBinding(
        ResourceType.TOPIC,
        "x" * 2_000,
        PatternType.PREFIXED,
        "User:eve",
        "*",
        Operation.WRITE,
        Permission.ALLOW,
    )
    changes = (rule_values(rule), user_values("bob", "SCRAM-SHA-256", is_deleted=True))
    event = AuditEvent("changed", changes=changes * NAMED_MAX, others=7)
    line = line_of(event, TIME)
    document = json.loads(line)
    assert len(document["changes"]) == NAMED_MAX
    assert document["others"] == 7
    first, second = document["changes"][:2]
    assert first.pop("resource").startswith("TOPIC:xxx")
    assert first == {
        "permission": "ALLOW",
        "principal": "User:eve",
        "host": "*",
        "operation": "WRITE",
        "pattern": "PREFIXED",
    }
    assert second == {"user": "bob", "mechanism": "SCRAM-SHA-256", "change": "deleted"}
    assert len(line) < NAMED_MAX * 6 * TEXT_MAX
