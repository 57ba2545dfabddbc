"""Quotas on Penstock and on Apache Kafka: rates that are kept, Kafka's tool and ours, a restart.

Windows are short here, so that the burst which they allow is over soon and a rate can be measured
in some seconds.
"""

import threading
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from penstock.cli.main import run as run_penstock
from penstock.protocol.messages.produce import ProduceResponse
from tests.broker.handlers.asker import NAMED, Asker, batch_of, fresh_name, produce_request
from tests.broker.handlers.quotas import described, set_quotas
from tests.oracle.kafka_broker import kafka_broker
from tests.oracle.kafka_jars import run_kafka_tool
from tests.oracle.penstock_broker import penstock_broker, penstock_environment
from tests.oracle.running_broker import RunningBroker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

TOOL = "kafka.admin.ConfigCommand"
PROPERTIES = {"quota.window.num": "2", "auto.create.topics.enable": "false"}
LIMIT = 400_000
RECORD_BYTES = 8_000
WARM_UP_SECONDS = 6.0
"""The burst that windows allow is over, and what it cost is paid."""
MEASURED_SECONDS = 10.0
ABOVE = 0.15
BELOW = 0.25
"""A consumer of whole batches gets 0.88 of its limit from Apache Kafka on a quiet machine."""
MEASUREMENTS_MAX = 3


@pytest.fixture(scope="module", params=["kafka", "penstock"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp(request.param)
    made = (
        kafka_broker(folder, properties=PROPERTIES)
        if request.param == "kafka"
        else penstock_broker(folder, environment=penstock_environment(PROPERTIES))
    )
    with made as running:
        yield running


@pytest.fixture
def asker(broker: RunningBroker) -> Iterator[Asker]:
    with Asker(broker.port, is_kafka=broker.name == "kafka") as connection:
        yield connection


class Meter:
    """How many bytes came when."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seen: list[tuple[float, int]] = []

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def add(self, size: int) -> None:
        self._seen.append((self.seconds, size))

    def rate(self) -> float:
        """Bytes a second after the warm-up, from one arrival to another."""
        counted = [(at, size) for at, size in self._seen if at >= WARM_UP_SECONDS]
        assert len(counted) > 10, self._seen[-3:]
        elapsed = counted[-1][0] - counted[0][0]
        assert elapsed > MEASURED_SECONDS / 2
        return sum(size for _, size in counted[1:]) / elapsed

    def longest_pause(self) -> float:
        times = [at for at, _ in self._seen if at >= WARM_UP_SECONDS]
        return max(after - before for before, after in pairwise(times))


def measured_producer(bootstrap: str, client_id: str, topic: str) -> Meter:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "linger.ms": 5,
            "batch.size": 4 * RECORD_BYTES,
            "queue.buffering.max.messages": 32,
            "message.timeout.ms": 60_000,
        }
    )
    meter = Meter()

    def delivered(error: object, message: Message) -> None:
        assert error is None
        meter.add(RECORD_BYTES)

    while meter.seconds < WARM_UP_SECONDS + MEASURED_SECONDS:
        try:
            producer.produce(topic, bytes(RECORD_BYTES), on_delivery=delivered)
        except BufferError:
            producer.poll(0.05)
        producer.poll(0)
    producer.flush(30)
    return meter


def measured_consumer(bootstrap: str, client_id: str, topic: str) -> Meter:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "enable.auto.commit": False,
            # Four batches: of a fifth, Kafka would send and charge a part that is of no use.
            "max.partition.fetch.bytes": 4 * (4 * RECORD_BYTES + 200),
            "fetch.wait.max.ms": 100,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    meter = Meter()
    while meter.seconds < WARM_UP_SECONDS + MEASURED_SECONDS:
        for message in consumer.consume(100, timeout=0.05):
            assert message.error() is None
            meter.add(len(message.value() or b""))
    consumer.close()
    return meter


def measured_rates(bootstrap: str, producer_id: str, consumer_id: str) -> dict[str, float]:
    """The rates of a producer and a consumer that run side by side, from and into own topics."""
    meters: dict[str, Meter] = {}

    def produce() -> None:
        meters["producer"] = measured_producer(bootstrap, producer_id, f"empty-{producer_id}")

    def consume() -> None:
        meters["consumer"] = measured_consumer(bootstrap, consumer_id, f"filled-{consumer_id}")

    threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    return {name: meter.rate() for name, meter in meters.items()}


def test_producers_and_consumers_keep_to_their_rates(broker: RunningBroker, asker: Asker) -> None:
    """Rates above the limit fail at once; a busy machine lowers rates, so low ones are repeated."""
    producer_id, consumer_id = fresh_name("producer"), fresh_name("consumer")
    filled = f"filled-{consumer_id}"
    asker.create(filled)
    asker.create(f"empty-{producer_id}")
    wanted = int(LIMIT * (WARM_UP_SECONDS + MEASURED_SECONDS) * 2)
    for _ in range(wanted // (4 * RECORD_BYTES)):
        asker.produce(filled, batch_of(*[bytes(RECORD_BYTES)] * 4))
    set_quotas(asker, {"client-id": producer_id}, producer_byte_rate=LIMIT)
    set_quotas(asker, {"user": None, "client-id": consumer_id}, consumer_byte_rate=LIMIT)
    best = {"producer": 0.0, "consumer": 0.0}
    for _ in range(MEASUREMENTS_MAX):
        rates = measured_rates(broker.bootstrap, producer_id, consumer_id)
        print(broker.name, {name: round(rate) for name, rate in rates.items()}, "of", LIMIT)
        assert set(rates) == set(best)
        assert max(rates.values()) < (1 + ABOVE) * LIMIT, rates
        best = {name: max(best[name], rate) for name, rate in rates.items()}
        if min(best.values()) > (1 - BELOW) * LIMIT:
            return
    raise AssertionError(f"the best rates of {MEASUREMENTS_MAX} measurements are low: {best}")


def lines_of_tool(broker: RunningBroker, *words: str) -> list[str]:
    printed = run_kafka_tool(TOOL, ["--bootstrap-server", broker.bootstrap, *words])
    return sorted(line.strip() for line in printed.splitlines() if line.strip())


def test_kafkas_tool_sets_and_shows_quotas(broker: RunningBroker, asker: Asker) -> None:
    changed = lines_of_tool(
        broker,
        *("--alter", "--entity-type", "users", "--entity-name", "tool-user"),
        *("--entity-type", "clients", "--entity-default"),
        *("--add-config", "producer_byte_rate=1048576,request_percentage=12.5"),
    )
    assert changed == ["Completed updating config for user tool-user."]
    entity = {"user": "tool-user", "client-id": None}
    asker.until(lambda: bool(described(asker, entity)))
    shown = lines_of_tool(
        broker,
        *("--describe", "--entity-type", "users", "--entity-name", "tool-user"),
        *("--entity-type", "clients", "--entity-default"),
    )
    whose, _, values = shown[0].partition(" are ")
    assert whose == "Quota configs for user-principal 'tool-user', the default client-id"
    assert sorted(values.split(", ")) == ["producer_byte_rate=1048576.0", "request_percentage=12.5"]
    assert len(shown) == 1


def test_our_tool_sets_and_shows_quotas(
    broker: RunningBroker, asker: Asker, capfd: pytest.CaptureFixture[str]
) -> None:
    where = ("--bootstrap-server", broker.bootstrap)
    assert (
        run_penstock(["quota", "set", *where, "--client-id", "ours", "consumer_byte_rate=7"]) == 0
    )
    asker.until(lambda: bool(described(asker, {"client-id": "ours"})))
    capfd.readouterr()
    assert run_penstock(["quota", "list", *where, "--client-id", "ours"]) == 0
    assert capfd.readouterr().out.split() == [
        *("user", "client", "id", "address", "quota", "value"),
        *("-", "ours", "-", "consumer_byte_rate", "7"),
    ]
    assert run_penstock(["quota", "delete", *where, "--client-id", "ours"]) == 0
    asker.until(lambda: not described(asker, {"client-id": "ours"}))


def test_quotas_outlive_the_broker(broker: RunningBroker) -> None:
    is_kafka = broker.name == "kafka"
    client_id, topic = fresh_name("client"), fresh_name("kept")
    with Asker(broker.port, is_kafka=is_kafka) as asker:
        asker.create(topic)
        set_quotas(asker, {"client-id": client_id}, producer_byte_rate=10_000)
        set_quotas(asker, {"ip": "10.9.8.7"}, connection_creation_rate=3)
    broker.kill()
    broker.start()
    with Asker(broker.port, is_kafka=is_kafka) as asker:
        asker.until(lambda: bool(described(asker, {"ip": "10.9.8.7"})))
        assert described(asker, {"client-id": client_id}) == {
            frozenset({("client-id", client_id)}): {"producer_byte_rate": 10_000}
        }
        asker._wait_until_led(topic, 1)
    with Asker(broker.port, is_kafka=is_kafka, client_id=client_id) as client:
        request = produce_request(topic, {0: batch_of(bytes(100_000))})
        assert client.ask(request, NAMED, ProduceResponse).throttle_time_ms > 1_000
