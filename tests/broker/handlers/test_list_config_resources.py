"""ListConfigResources: what has settings, by type."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC


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


@pytest.mark.parametrize("kind", [CLIENT_METRICS, GROUP])
def test_nobody_has_set_anything_of_these(asker: Asker, kind: int) -> None:
    assert listed(asker, kind) == set()


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
