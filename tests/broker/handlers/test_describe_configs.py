"""DescribeConfigs: every setting, its source and its documentation."""

import asyncio

import pytest

from penstock.broker.handlers import describe_configs
from penstock.protocol.error_codes import ErrorCode
from penstock.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from tests.broker.handlers.asker import Asker, fresh_name
from tests.broker.handlers.fakes import FakeServices

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
TOPIC_SOURCE, DEFAULT_SOURCE = 1, 5
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7


def ask(
    asker: Asker,
    kind: int,
    name: str,
    keys: tuple[str, ...] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=(
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=keys
            ),
        ),
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = asker.ask(request, 4, DescribeConfigsResponse).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def configs_in(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert result.error_code == ErrorCode.NONE, result
    return {config.name: config for config in result.configs}


@pytest.fixture
def topic(asker: Asker) -> str:
    name = fresh_name()
    asker.create(name, configs={"retention.ms": "1234567"})
    return name


def test_a_topic_has_every_setting(asker: Asker, topic: str) -> None:
    found = configs_in(ask(asker, TOPIC, topic))
    changed = found["retention.ms"]
    assert (changed.value, changed.config_source) == ("1234567", TOPIC_SOURCE)
    for name, value, kind in (
        ("cleanup.policy", "delete", LIST),
        ("compression.type", "producer", STRING),
        ("max.message.bytes", "1048588", INT),
        ("retention.bytes", "-1", LONG),
        ("segment.bytes", "1073741824", INT),
        ("preallocate", "false", BOOLEAN),
    ):
        config = found[name]
        assert (config.value, config.config_source) == (value, DEFAULT_SOURCE)
        assert config.config_type == kind
        assert not config.read_only
        assert not config.is_sensitive
        assert config.synonyms == ()
        assert config.documentation is None


def test_the_names_are_those_of_kafka(asker: Asker, topic: str) -> None:
    assert len(configs_in(ask(asker, TOPIC, topic))) == 33


def test_only_the_keys_that_were_asked_for(asker: Asker, topic: str) -> None:
    found = configs_in(ask(asker, TOPIC, topic, ("retention.ms", "no.such.key")))
    assert list(found) == ["retention.ms"]


def test_an_empty_list_of_keys_asks_for_all(asker: Asker, topic: str) -> None:
    assert len(configs_in(ask(asker, TOPIC, topic, ()))) == 33


def test_synonyms_in_the_order_in_which_they_win(asker: Asker, topic: str) -> None:
    keys = ("retention.ms", "segment.bytes")
    found = configs_in(ask(asker, TOPIC, topic, keys, synonyms=True))
    assert [(one.name, one.value, one.source) for one in found["retention.ms"].synonyms][:1] == [
        ("retention.ms", "1234567", TOPIC_SOURCE)
    ]
    assert [(one.name, one.value, one.source) for one in found["segment.bytes"].synonyms] == [
        ("log.segment.bytes", "1073741824", DEFAULT_SOURCE)
    ]


def test_documentation_is_told_to_who_asks(asker: Asker, topic: str) -> None:
    found = configs_in(ask(asker, TOPIC, topic, documentation=True))
    assert all(config.documentation for config in found.values())


def test_a_topic_that_nobody_has(asker: Asker) -> None:
    result = ask(asker, TOPIC, fresh_name())
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert result.configs == ()


@pytest.mark.parametrize("name", ["", "a b", "..", "x" * 250])
def test_a_topic_whose_name_cannot_be(asker: Asker, name: str) -> None:
    assert ask(asker, TOPIC, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_broker(asker: Asker) -> None:
    found = configs_in(ask(asker, BROKER, "1", synonyms=True, documentation=True))
    for name in ("node.id", "num.partitions", "message.max.bytes", "auto.create.topics.enable"):
        assert found[name].value is not None
        assert found[name].documentation
    assert found["node.id"].value == "1"
    assert found["node.id"].read_only


def test_only_what_was_changed_is_of_all_brokers(penstock: Asker) -> None:
    assert configs_in(ask(penstock, BROKER, "")) == {}


def test_there_are_no_loggers_and_no_client_metrics(penstock: Asker) -> None:
    assert configs_in(ask(penstock, BROKER_LOGGER, "1")) == {}
    assert configs_in(ask(penstock, CLIENT_METRICS, "any")) == {}


@pytest.mark.parametrize(("kind", "name"), [(8, ""), (8, "2"), (16, "")])
def test_loggers_and_client_metrics_of_nobody(asker: Asker, kind: int, name: str) -> None:
    result = ask(asker, kind, name)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message


@pytest.mark.parametrize("name", ["2", "x", "-1"])
def test_another_broker(asker: Asker, name: str) -> None:
    result = ask(asker, BROKER, name)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message


@pytest.mark.parametrize("kind", [0, 1, 3, 99])
def test_resources_that_nobody_knows(asker: Asker, kind: int) -> None:
    assert ask(asker, kind, "x").error_code == ErrorCode.INVALID_REQUEST


def test_one_refused_resource_leaves_the_others(asker: Asker, topic: str) -> None:
    missing = fresh_name()
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=("retention.ms",)
            )
            for name in (missing, topic)
        )
    )
    results = asker.ask(request, 4, DescribeConfigsResponse).results
    assert {result.resource_name: result.error_code for result in results} == {
        missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        topic: ErrorCode.NONE,
    }


def test_others_get_their_turns_while_many_resources_are_described() -> None:
    request = DescribeConfigsRequest(
        resources=tuple(
            DescribeConfigsResource(resource_type=CLIENT_METRICS, resource_name=str(number))
            for number in range(1_000)
        )
    )

    async def turns() -> int:
        context = FakeServices().context(4)
        count = 0
        async with asyncio.TaskGroup() as tasks:
            work = tasks.create_task(describe_configs.handle(request, context))
            while not work.done():
                await asyncio.sleep(0)
                count += 1
        assert len(work.result().results) == 1_000
        return count

    assert asyncio.run(turns()) >= 1_000 // describe_configs.RESOURCES_AT_ONCE
