"""Real clients, unchanged, on Penstock and on Apache Kafka: the same calls, the same results.

Each scenario is run once for each client and broker; then the whole transcripts are compared.
Values of the server alone (ids, ports, its own clock) are replaced by a word first. Last, every
client reads the records of every other one.
"""

import functools
from collections.abc import Callable

import pytest

from tests.interop.client_drivers import CLIENTS
from tests.interop.conftest import BrokerNamed, DriverOn
from tests.interop.driver_protocol import Fetch, Produce, Record
from tests.interop.scenarios import (
    BASE_MS,
    CODECS,
    SCENARIOS,
    SPAN_MS,
    Stage,
    expected,
    some_records,
)

pytestmark = pytest.mark.interop

BROKERS = ("kafka", "penstock")
Scenario = Callable[[Stage], None]
Transcript = list[tuple[str, object]]
Played = Callable[[str, str, Scenario], Transcript]


@pytest.fixture(scope="session")
def played(broker_named: BrokerNamed, driver_on: DriverOn) -> Played:
    """Play a scenario once; a second asking gets the transcript, or the failure, of the first."""

    @functools.cache
    def play(broker: str, client: str, scenario: Scenario) -> Transcript | BaseException:
        topic = f"{scenario.__name__}.{client}"
        stage = Stage(driver_on(client, broker), broker_named(broker).bootstrap, topic)
        stage.driver.transcript.clear()
        try:
            scenario(stage)
        except (pytest.fail.Exception, Exception) as error:  # noqa: BLE001  kept for the next call
            return error
        return list(stage.driver.transcript)

    def get(broker: str, client: str, scenario: Scenario) -> Transcript:
        outcome = play(broker, client, scenario)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return get


def normal(value: object, topic: str) -> object:
    """The value without what only the server decides."""
    if isinstance(value, list):
        return [normal(item, topic) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _normal_field(name, item, topic) for name, item in value.items()}


def _normal_field(name: str, value: object, topic: str) -> object:
    if name in ("topic_id", "cluster_id", "port", "message"):
        return value and f"<{name}>"
    if name == "timestamp_ms" and isinstance(value, int):
        return value - BASE_MS if BASE_MS <= value < BASE_MS + SPAN_MS else "<now>"
    return normal(value, topic)


def normal_transcript(transcript: Transcript, topic: str) -> Transcript:
    """All answers without what only the server decides; of all topics only the own one."""
    answers: Transcript = []
    for name, answer in transcript:
        assert isinstance(answer, dict)
        if name == "list_topics" and "ok" in answer:
            answers.append((name, topic in answer["ok"]))
        else:
            answers.append((name, normal(answer, topic)))
    return answers


every_client = pytest.mark.parametrize("client", CLIENTS)
every_broker = pytest.mark.parametrize("broker", BROKERS)
every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.__name__)


@every_broker
@every_client
@every_scenario
def test_scenario(broker: str, client: str, scenario: Scenario, played: Played) -> None:
    assert played(broker, client, scenario)


@every_client
@every_scenario
def test_both_brokers_answer_alike(client: str, scenario: Scenario, played: Played) -> None:
    topic = f"{scenario.__name__}.{client}"
    kafka = normal_transcript(played("kafka", client, scenario), topic)
    penstock = normal_transcript(played("penstock", client, scenario), topic)
    assert penstock == kafka


def written_records() -> list[Record]:
    """Thirty records for each codec, all of one partition."""
    return some_records(30 * len(CODECS), seed=1, partitions=1)


@pytest.fixture(scope="session")
def written(driver_on: DriverOn) -> Callable[[str, str], str]:
    """A topic with batches of each codec, written by this client on this broker."""

    @functools.cache
    def write(broker: str, writer: str) -> str:
        topic = f"written-by.{writer}"
        driver = driver_on(writer, broker)
        driver.create_topic(topic, 1)
        for index, codec in enumerate(CODECS):
            part = written_records()[index * 30 : index * 30 + 30]
            driver.produce(Produce(topic, tuple(part), codec=codec))
        return topic

    return write


@every_broker
@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_every_client_reads_what_every_other_wrote(
    broker: str,
    reader: str,
    writer: str,
    written: Callable[[str, str], str],
    driver_on: DriverOn,
) -> None:
    topic = written(broker, writer)
    records = written_records()
    found = driver_on(reader, broker).fetch(Fetch(topic, 0, "earliest", len(records)))
    assert found == expected(records)
