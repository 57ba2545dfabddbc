"""Settings of single groups: described, changed, refused, and followed by the next heartbeat."""

from functools import partial

import pytest

from penstock.core.limits import GROUP_WITH_SETTINGS_NAME_BYTES_MAX
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.alter_configs import AlterConfigsResponse
from penstock.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.configs import (
    APPEND,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    Edit,
    alter,
    alter_request,
    increment,
    increment_request,
    overrides,
)
from tests.broker.handlers.groups import commit, ready
from tests.broker.handlers.test_describe_configs import ask, configs_in

SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"
ASSIGNMENT = "consumer.assignment.interval.ms"
GROUP_SOURCE, DEFAULT_SOURCE, INT = 8, 5, 3


def until_overridden(asker: Asker, name: str, wanted: dict[str, str]) -> None:
    """Kafka's brokers learn of a change a little later."""
    asker.until(partial(lambda asked: overrides(asker, asked, GROUP) == wanted, name))


# --- Described ---


@pytest.mark.parametrize("name", ["nobody", "a b/é\n", "x" * 30_000])
def test_a_group_has_settings_whether_it_exists_or_not(asker: Asker, name: str) -> None:
    found = configs_in(ask(asker, GROUP, name, synonyms=True, documentation=True))
    for setting, value in ((SESSION, "45000"), (HEARTBEAT, "5000"), (ASSIGNMENT, "1000")):
        config = found[setting]
        assert (config.value, config.config_source) == (value, DEFAULT_SOURCE)
        assert (config.config_type, config.read_only, config.is_sensitive) == (INT, False, False)
        assert config.documentation
        assert [(one.name, one.value, one.source) for one in config.synonyms] == [
            (f"group.{setting}", value, DEFAULT_SOURCE)
        ]


def test_only_settings_that_have_an_effect_are_shown(penstock: Asker) -> None:
    # Kafka shows those of streams groups too.
    names = set(configs_in(ask(penstock, GROUP, "g")))
    assert {name.partition(".")[0] for name in names} == {"consumer", "share"}
    assert len(names) == 12


def test_only_the_keys_that_were_asked_for(asker: Asker) -> None:
    assert list(configs_in(ask(asker, GROUP, "g", (SESSION, "nope")))) == [SESSION]


def test_a_group_without_a_name(asker: Asker) -> None:
    result = ask(asker, GROUP, "")
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == "Group name must not be empty"
    assert result.configs == ()


# --- Changed ---


def test_settings_are_set_and_deleted(asker: Asker) -> None:
    name = fresh_name("group")
    edits: tuple[Edit, ...] = ((SESSION, SET, "50000"), (HEARTBEAT, SET, "6000"))
    assert increment(asker, GROUP, name, *edits).error_code == ErrorCode.NONE
    until_overridden(asker, name, {SESSION: "50000", HEARTBEAT: "6000"})
    (config,) = ask(asker, GROUP, name, (SESSION,), synonyms=True).configs
    assert [(one.name, one.value, one.source) for one in config.synonyms] == [
        (SESSION, "50000", GROUP_SOURCE),
        (f"group.{SESSION}", "45000", DEFAULT_SOURCE),
    ]
    edits = ((SESSION, DELETE, None), (ASSIGNMENT, SET, "0"), ("nope", DELETE, None))
    assert increment(asker, GROUP, name, *edits).error_code == ErrorCode.NONE
    until_overridden(asker, name, {HEARTBEAT: "6000", ASSIGNMENT: "0"})


SHARE_VALUES = {
    "share.session.timeout.ms": "50000",
    "share.heartbeat.interval.ms": "6000",
    "share.assignment.interval.ms": "0",
    "share.record.lock.duration.ms": "15000",
    "share.delivery.count.limit": "10",
    "share.partition.max.record.locks": "4000",
    "share.isolation.level": "read_committed",
    "share.renew.acknowledge.enable": "false",
    "share.auto.offset.reset": "by_duration:P1DT2H3M4.5S",
}


def test_settings_of_share_groups_are_set(asker: Asker) -> None:
    name = fresh_name("group")
    edits: list[Edit] = [(setting, SET, value) for setting, value in SHARE_VALUES.items()]
    assert increment(asker, GROUP, name, *edits).error_code == ErrorCode.NONE
    until_overridden(asker, name, SHARE_VALUES)


def test_replacing_takes_back_what_is_not_named(asker: Asker) -> None:
    name = fresh_name("group")
    settings = ((SESSION, "50000"), (HEARTBEAT, "6000"))
    assert alter(asker, GROUP, name, *settings).error_code == ErrorCode.NONE
    until_overridden(asker, name, {SESSION: "50000", HEARTBEAT: "6000"})
    assert alter(asker, GROUP, name, (SESSION, "51000")).error_code == ErrorCode.NONE
    until_overridden(asker, name, {SESSION: "51000"})
    assert alter(asker, GROUP, name).error_code == ErrorCode.NONE
    until_overridden(asker, name, {})


@pytest.mark.parametrize("name", ["a b/é\n%2F", "y" * GROUP_WITH_SETTINGS_NAME_BYTES_MAX])
def test_a_name_may_hold_anything(asker: Asker, name: str) -> None:
    assert increment(asker, GROUP, name, (SESSION, SET, "50000")).error_code == ErrorCode.NONE
    until_overridden(asker, name, {SESSION: "50000"})


@pytest.mark.parametrize("text", [" 50000", "+50000"])
def test_a_number_is_kept_in_its_plain_form(penstock: Asker, text: str) -> None:
    # Kafka 4.3.1 keeps the text, shows the number, and fails to use it when there are spaces.
    name = fresh_name("group")
    assert increment(penstock, GROUP, name, (SESSION, SET, text)).error_code == ErrorCode.NONE
    assert overrides(penstock, name, GROUP) == {SESSION: "50000"}


def test_validating_changes_nothing(asker: Asker) -> None:
    name = fresh_name("group")
    result = increment(asker, GROUP, name, (SESSION, SET, "50000"), validate_only=True)
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert alter(asker, GROUP, name, (SESSION, "50000"), validate_only=True).error_code == 0
    assert overrides(asker, name, GROUP) == {}


def test_topics_and_groups_in_one_request(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    request = increment_request(
        (GROUP, name, ((SESSION, SET, "50000"),)),
        (TOPIC, "nobody", (("retention.ms", SET, "5000"),)),
        (GROUP, f"{name}-bad", ((SESSION, SET, "50000"), (HEARTBEAT, SET, "x"))),
        (TOPIC, name, (("retention.ms", SET, "5000"),)),
    )
    answer = asker.ask(request, 1, IncrementalAlterConfigsResponse)
    found = {(one.resource_type, one.resource_name): one.error_code for one in answer.responses}
    assert found == {
        (GROUP, name): ErrorCode.NONE,
        (TOPIC, "nobody"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (GROUP, f"{name}-bad"): ErrorCode.INVALID_CONFIG,
        (TOPIC, name): ErrorCode.NONE,
    }
    until_overridden(asker, name, {SESSION: "50000"})
    asker.until(lambda: overrides(asker, name) == {"retention.ms": "5000"})
    assert overrides(asker, f"{name}-bad", GROUP) == {}


# --- Refused ---

REFUSED: list[tuple[tuple[Edit, ...], ErrorCode, str]] = [
    (
        ((SESSION, SET, "44999"),),
        ErrorCode.INVALID_CONFIG,
        f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms",
    ),
    (
        ((SESSION, SET, "60001"),),
        ErrorCode.INVALID_CONFIG,
        f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms",
    ),
    (
        ((HEARTBEAT, SET, "4999"),),
        ErrorCode.INVALID_CONFIG,
        f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
    ),
    (
        ((HEARTBEAT, SET, "15001"),),
        ErrorCode.INVALID_CONFIG,
        f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms",
    ),
    (
        ((ASSIGNMENT, SET, "15001"),),
        ErrorCode.INVALID_CONFIG,
        f"{ASSIGNMENT} must be less than or equal to group.consumer.max.assignment.interval.ms",
    ),
    (
        ((SESSION, SET, "0"),),
        ErrorCode.INVALID_CONFIG,
        f"Invalid value 0 for configuration {SESSION}: Value must be at least 1",
    ),
    (
        ((ASSIGNMENT, SET, "-1"),),
        ErrorCode.INVALID_CONFIG,
        f"Invalid value -1 for configuration {ASSIGNMENT}: Value must be at least 0",
    ),
    (
        ((SESSION, SET, "soon"),),
        ErrorCode.INVALID_CONFIG,
        f"Invalid value soon for configuration {SESSION}: Not a number of type INT",
    ),
    (((SESSION, SET, ""),), ErrorCode.INVALID_CONFIG, "Invalid value  for configuration"),
    (((SESSION, SET, "9" * 11),), ErrorCode.INVALID_CONFIG, f"Invalid value {'9' * 11} for"),
    (((f"group.{SESSION}", SET, "50000"),), ErrorCode.INVALID_CONFIG, "Unknown group config name"),
    (
        ((SESSION, SET, None),),
        ErrorCode.INVALID_REQUEST,
        f"Null value not supported for : {SESSION}",
    ),
    (
        ((SESSION, APPEND, "50000"),),
        ErrorCode.INVALID_CONFIG,
        f"Can't APPEND to key {SESSION} because its type is not LIST.",
    ),
    (
        (("nope", SUBTRACT, "1"),),
        ErrorCode.INVALID_CONFIG,
        "Can't SUBTRACT to key nope because its type is not LIST.",
    ),
    (
        ((SESSION, SET, "50000"), (SESSION, DELETE, None)),
        ErrorCode.INVALID_REQUEST,
        "Error due to duplicate config keys",
    ),
    (
        (("share.record.lock.duration.ms", SET, "60001"),),
        ErrorCode.INVALID_CONFIG,
        "share.record.lock.duration.ms must be less than or equal to group.share.max.record.lock",
    ),
    (
        (("share.partition.max.record.locks", SET, "99"),),
        ErrorCode.INVALID_CONFIG,
        "Invalid value 99 for configuration share.partition.max.record.locks: Value must be at",
    ),
    (
        (("share.isolation.level", SET, "serial"),),
        ErrorCode.INVALID_CONFIG,
        "Invalid value serial for configuration share.isolation.level: String must be one of: ",
    ),
    *(
        (
            (("share.auto.offset.reset", SET, text),),
            ErrorCode.INVALID_CONFIG,
            f"Invalid value {text} for configuration share.auto.offset.reset: ",
        )
        for text in ("soon", "by_duration:", "by_duration:PT", "by_duration:-PT1H", "Earliest")
    ),
    (
        (("share.renew.acknowledge.enable", SET, "yes"),),
        ErrorCode.INVALID_CONFIG,
        "Invalid value yes for configuration share.renew.acknowledge.enable: Expected value to",
    ),
    # Of two that are wrong, the one that Kafka names.
    (
        ((HEARTBEAT, SET, "15001"), ("share.session.timeout.ms", SET, "1")),
        ErrorCode.INVALID_CONFIG,
        f"{HEARTBEAT} must",
    ),
    (((SESSION, SET, "1"), (HEARTBEAT, SET, "1")), ErrorCode.INVALID_CONFIG, f"{HEARTBEAT} must"),
    (((HEARTBEAT, SET, "y"), (SESSION, SET, "x")), ErrorCode.INVALID_CONFIG, "Invalid value x"),
]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(("edits", "code", "text"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused(
    asker: Asker, edits: tuple[Edit, ...], code: ErrorCode, text: str, validate_only: bool
) -> None:
    name = fresh_name("group")
    result = increment(asker, GROUP, name, *edits, validate_only=validate_only)
    assert result.error_code == code, result
    assert (result.error_message or "").startswith(text)
    assert overrides(asker, name, GROUP) == {}


@pytest.mark.parametrize(
    ("edits", "code", "text"),
    [
        ((), ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        (((SESSION, SET, "x"),), ErrorCode.INVALID_REQUEST, "Default group resources are not"),
        (((SESSION, DELETE, None),), ErrorCode.INVALID_REQUEST, "Default group resources are not"),
        (((SESSION, APPEND, "1"),), ErrorCode.INVALID_CONFIG, "Can't APPEND to key"),
    ],
)
def test_a_group_without_a_name_is_refused(
    asker: Asker, edits: tuple[Edit, ...], code: ErrorCode, text: str
) -> None:
    result = increment(asker, GROUP, "", *edits)
    assert result.error_code == code, result
    assert (result.error_message or "").startswith(text)


@pytest.mark.parametrize(
    ("name", "settings", "code"),
    [
        ("g", ((SESSION, "1"),), ErrorCode.INVALID_CONFIG),
        ("g", ((SESSION, None),), ErrorCode.INVALID_REQUEST),
        ("g", (("nope", "1"),), ErrorCode.INVALID_CONFIG),
        ("", (), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused_of_a_replacement(
    asker: Asker, name: str, settings: tuple[tuple[str, str | None], ...], code: ErrorCode
) -> None:
    answer = asker.ask(alter_request((GROUP, name, settings)), 2, AlterConfigsResponse)
    assert [one.error_code for one in answer.responses] == [code]


def test_a_name_has_a_bound(penstock: Asker) -> None:
    # Kafka has none.
    name = "z" * (GROUP_WITH_SETTINGS_NAME_BYTES_MAX + 1)
    result = increment(penstock, GROUP, name, (SESSION, SET, "50000"))
    assert result.error_code == ErrorCode.POLICY_VIOLATION
    assert increment(penstock, GROUP, name, (SESSION, DELETE, None)).error_code == ErrorCode.NONE
    assert overrides(penstock, name, GROUP) == {}


# --- Followed ---


def heartbeat_interval_ms(asker: Asker, group: str, topic: str) -> int:
    """What a member is told that joins, or joins again."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=(topic,),
        topic_partitions=(),
    )
    answer = asker.ask(request, 1, ConsumerGroupHeartbeatResponse)
    assert answer.error_code == ErrorCode.NONE, answer
    return answer.heartbeat_interval_ms


def test_the_next_heartbeat_follows(asker: Asker) -> None:
    group, other, topic = fresh_name("group"), fresh_name("group"), fresh_name()
    asker.create(topic)
    ready(asker, group)
    ready(asker, other)
    assert heartbeat_interval_ms(asker, group, topic) == 5_000
    for edit, interval_ms in (
        ((HEARTBEAT, SET, "7000"), 7_000),
        ((HEARTBEAT, DELETE, None), 5_000),
    ):
        assert increment(asker, GROUP, group, edit).error_code == ErrorCode.NONE
        asker.until(
            partial(
                lambda wanted: heartbeat_interval_ms(asker, group, topic) == wanted, interval_ms
            )
        )
        assert heartbeat_interval_ms(asker, other, topic) == 5_000


def test_settings_stay_when_the_group_is_deleted(asker: Asker) -> None:
    group, topic = fresh_name("group"), fresh_name()
    asker.create(topic)
    ready(asker, group)
    assert increment(asker, GROUP, group, (SESSION, SET, "50000")).error_code == ErrorCode.NONE
    until_overridden(asker, group, {SESSION: "50000"})
    assert commit(asker, group, {(topic, 0): 1}) == {(topic, 0): ErrorCode.NONE}
    request = DeleteGroupsRequest(groups_names=(group,))
    (deleted,) = asker.ask(request, 2, DeleteGroupsResponse).results
    assert deleted.error_code == ErrorCode.NONE
    assert overrides(asker, group, GROUP) == {SESSION: "50000"}
