"""ListConfigResources: the resources with settings, by type."""

from functools import partial

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    TOPIC,
    increment,
)


def listed(asker: Asker, *types: int, version: int = 1) -> set[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=types)
    answer = asker.ask(request, version, ListConfigResourcesResponse)
    assert answer.error_code == ErrorCode.NONE
    return {(found.resource_type, found.resource_name) for found in answer.config_resources}


def test_every_type_is_listed_when_none_is_asked_for(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    assert {(TOPIC, name), (BROKER, "1")} <= listed(asker)


def test_only_what_is_asked_for(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    assert (TOPIC, name) in listed(asker, TOPIC)
    assert {kind for kind, _ in listed(asker, TOPIC)} == {TOPIC}
    assert listed(asker, BROKER) == {(BROKER, "1")}
    assert {kind for kind, _ in listed(asker, BROKER, TOPIC)} == {TOPIC, BROKER}


def test_nobody_has_set_anything_of_client_metrics(asker: Asker) -> None:
    assert listed(asker, CLIENT_METRICS) == set()


def test_groups_are_listed_while_they_have_settings(asker: Asker) -> None:
    name = fresh_name("group")
    assert (GROUP, name) not in listed(asker)
    for edits, is_listed in (
        (("consumer.session.timeout.ms", SET, "50000"), True),
        (("consumer.session.timeout.ms", DELETE, None), False),
    ):
        assert increment(asker, GROUP, name, edits).error_code == ErrorCode.NONE
        asker.until(partial(lambda wanted: ((GROUP, name) in listed(asker)) is wanted, is_listed))
        assert {kind for kind, _ in listed(asker, GROUP)} <= {GROUP}


def test_version_0_knows_client_metrics_only(asker: Asker) -> None:
    assert listed(asker, version=0) == set()


@pytest.mark.parametrize("types", [(3,), (TOPIC, 3), (0,)])
def test_a_type_that_does_not_exist(asker: Asker, types: tuple[int, ...]) -> None:
    request = ListConfigResourcesRequest(resource_types=types)
    answer = asker.ask(request, 1, ListConfigResourcesResponse)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.config_resources == ()


def test_loggers_have_no_settings_here(penstock: Asker) -> None:
    # Kafka lists each broker, whose loggers have levels that can be changed.
    assert listed(penstock, BROKER_LOGGER) == set()
