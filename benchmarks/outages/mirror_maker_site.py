"""MirrorMaker 2: Apache Kafka on both sides, and one MirrorMaker at the site.

Settings from Kafka's documentation for geo-replication: one flow in each direction, exactly-once
support of the source connectors on (`exactly.once.source.support = enabled`), offset syncs and
heartbeats at their defaults, refresh of topics every 5 s instead of every 10 minutes, so that the
test need not wait. A heap of 1 GiB for brokers, as in Kafka's start script, but with the quick
start of tests (first compiler, serial collector); 512 MiB for MirrorMaker. A kill ends the broker
of the site and MirrorMaker: both run there.
"""

import threading
from collections.abc import Mapping
from pathlib import Path

from benchmarks.outages.cut_link import CutLink
from benchmarks.outages.kafka_apps import KafkaPublisher, create_topic, receive, wait_for_topic
from benchmarks.outages.outage_run import Deliver
from benchmarks.outages.site_processes import ServerProcess, folder_bytes, free_port
from tests.oracle.cache import built, run, tool
from tests.oracle.kafka_jars import (
    KAFKA_VERSION,
    LOG4J_VERSION,
    QUICK_JVM,
    java,
    java_command,
    log4j_settings,
    run_kafka_tool,
)

UP, DOWN = "sales", "prices"
CLUSTER_IDS = {"hq": "AoiVrXEJTO24QuSBQbC-Rw", "site": "BoiVrXEJTO24QuSBQbC-Rw"}
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>oracle</groupId><artifactId>mirror</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-mirror</artifactId>
      <version>{kafka}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId>
      <version>{kafka}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId><version>{log4j}</version></dependency>
  </dependencies>
</project>
"""


def mirror_jars() -> Path:
    """Return the folder with MirrorMaker's jars, downloaded by Maven if they are not there."""

    def build(folder: Path) -> None:
        (folder / "pom.xml").write_text(_POM.format(kafka=KAFKA_VERSION, log4j=LOG4J_VERSION))
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}"]
        maven = tool("mvn", "install Maven (Debian: maven)")
        run([maven, "-q", "-B", "-f", folder / "pom.xml", *goal])

    return built(f"kafka-{KAFKA_VERSION}-mirror", build) / "lib"


class MirrorMakerSystem:
    """Two brokers and MirrorMaker."""

    def __init__(self) -> None:
        self.name = "Kafka + MirrorMaker 2"

    def start(self, folder: Path) -> None:
        """Start all, and wait until both flows exist."""
        self._folder = folder
        inner_port = free_port()
        self._link = CutLink(inner_port)
        self._link.start()
        hub_port, site_port = free_port(), free_port()
        self._hub_address = f"127.0.0.1:{hub_port}"
        self._site_address = f"127.0.0.1:{site_port}"
        self._hub = _broker(folder / "hq", "hq", hub_port, (inner_port, self._link.port))
        self._site = _broker(folder / "site", "site", site_port, None)
        self._hub.start()
        self._site.start()
        create_topic(self._hub_address, DOWN)
        create_topic(self._site_address, UP)
        self._mirror = _mirror(folder / "mirror", self._site_address, self._link.port)
        self._mirror.start()
        wait_for_topic(self._hub_address, f"site.{UP}", 180)
        wait_for_topic(self._site_address, f"hq.{DOWN}", 180)
        self._up = KafkaPublisher(self._site_address, UP)
        self._down = KafkaPublisher(self._hub_address, DOWN)

    def publish_up(self, number: int, content: bytes) -> int:  # noqa: ARG002
        """Publish at the site."""
        return self._up.publish(content)

    def publish_down(self, number: int, content: bytes) -> int:  # noqa: ARG002
        """Publish at the headquarters."""
        return self._down.publish(content)

    def receive_up(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Read the copy at the headquarters."""
        receive(self._hub_address, f"site.{UP}", deliver, is_done)

    def receive_down(self, deliver: Deliver, is_done: threading.Event) -> None:
        """Read the copy at the site."""
        receive(self._site_address, f"hq.{DOWN}", deliver, is_done)

    def cut(self) -> None:
        """Cut the link."""
        self._link.cut()

    def restore(self) -> None:
        """Restore the link."""
        self._link.restore()

    def kill_site(self) -> None:
        """Kill the broker of the site and MirrorMaker."""
        self._mirror.kill()
        self._site.kill()

    def start_site(self) -> None:
        """Start both again."""
        self._site.start()
        self._mirror.start()

    def memory_bytes(self) -> int:
        """Return the most memory of broker and MirrorMaker."""
        self._site.look()
        self._mirror.look()
        return self._site.memory_bytes + self._mirror.memory_bytes

    def disk_bytes(self) -> int:
        """Return the disk space of the site."""
        return folder_bytes(self._folder / "site" / "data")

    def stop(self) -> None:
        """End all."""
        self._mirror.kill()
        self._site.kill()
        self._hub.kill()
        self._link.stop()


def _broker(folder: Path, name: str, port: int, outer: tuple[int, int] | None) -> ServerProcess:
    """Return a broker; `outer` is the port for the site and the port that it is advertised as."""
    controller_port = free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    advertised = f"PLAINTEXT://127.0.0.1:{port}"
    if outer is not None:
        listeners += f",SITES://127.0.0.1:{outer[0]}"
        advertised += f",SITES://127.0.0.1:{outer[1]}"
    protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SITES:PLAINTEXT"
    _write(
        folder / "server.properties",
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
            "listeners": listeners,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "5",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "5",
            "group.initial.rebalance.delay.ms": "0",
        },
    )
    settings = folder / "server.properties"
    run_kafka_tool("kafka.tools.StorageTool", ["format", "-t", CLUSTER_IDS[name], "-c", settings])
    command = java_command("kafka.Kafka", [settings], options=(*QUICK_JVM[:2], "-Xms1g", "-Xmx1g"))
    return ServerProcess(command, folder, port)


def _mirror(folder: Path, site: str, link_port: int) -> ServerProcess:
    _write(
        folder / "mm2.properties",
        {
            "clusters": "hq,site",
            "hq.bootstrap.servers": f"127.0.0.1:{link_port}",
            "site.bootstrap.servers": site,
            "hq->site.enabled": "true",
            "hq->site.topics": DOWN,
            "site->hq.enabled": "true",
            "site->hq.topics": UP,
            "hq.exactly.once.source.support": "enabled",
            "site.exactly.once.source.support": "enabled",
            "replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            "heartbeats.topic.replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "offset.storage.replication.factor": "1",
            "status.storage.replication.factor": "1",
            "config.storage.replication.factor": "1",
            "refresh.topics.interval.seconds": "5",
            "dedicated.mode.enable.internal.rest": "true",
            "listeners": "http://127.0.0.1:0",
        },
    )
    classes = ":".join(str(one) for one in sorted(mirror_jars().glob("*.jar")))
    command = [
        java(),
        "-Xms512m",
        "-Xmx512m",
        f"-Dlog4j2.configurationFile={log4j_settings('warn')}",
        "-cp",
        classes,
        "org.apache.kafka.connect.mirror.MirrorMaker",
        str(folder / "mm2.properties"),
    ]
    return ServerProcess(command, folder, None)


def _write(path: Path, properties: Mapping[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
