"""Apache Kafka's jars, by Maven, and Java command lines over them.

Guarantees: `kafka_jars()` is a folder with the server, the tools and the Java client of one pinned
version. `java_command` names the jars one by one in sorted order, because a class-data archive is
only valid for the very class path it was created with, and a wildcard expands in the order of the
folder.

The class-data archive (JEP 350) holds the classes a broker loads, parsed once: a start takes about
one second instead of three. It is created at the first use and kept for this Java and these jars.
"""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.oracle.cache import OracleError, cache_folder, content_key, locked, progress, run, tool

KAFKA_VERSION = "4.3.1"
LOG4J_VERSION = "2.25.4"

QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m", "-Xmx512m")
"""For tests that start many: little memory, first compiler only."""

SERVER_JVM = ("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""Kafka's own start script's choices, for measurements."""

_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
  <groupId>oracle</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J_VERSION}</version></dependency>
  </dependencies>
</project>
"""

_LOG4J = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c - %m%n
"""


def java() -> str:
    """The `java` program."""
    return tool("java", "install a JDK, 17 or later (Debian: default-jdk-headless)")


@functools.cache
def java_version() -> str:
    """What `java --version` prints: part of the key of everything that is bound to one Java."""
    return run([java(), "--version"])


@functools.cache
def kafka_jars() -> Path:
    """The folder with the jars, downloaded by Maven if they are not there."""
    home = cache_folder() / f"kafka-{KAFKA_VERSION}"
    library = home / "lib"
    whole = library / f"kafka_2.13-{KAFKA_VERSION}.jar"
    with locked(home.name):
        if not whole.exists():
            progress(f"downloading Apache Kafka {KAFKA_VERSION} by Maven (54 MB)")
            home.mkdir(exist_ok=True)
            (home / "pom.xml").write_text(_POM)
            maven = tool("mvn", "install Maven (Debian: maven)")
            goal = ["dependency:copy-dependencies", f"-DoutputDirectory={library}"]
            run([maven, "-q", "-B", "-f", home / "pom.xml", *goal])
        if not whole.exists():
            raise OracleError(f"Maven ended without an error, yet {whole} is missing")
    return library


@functools.cache
def class_path() -> str:
    """Every jar by name, in sorted order."""
    return ":".join(str(jar) for jar in sorted(kafka_jars().glob("*.jar")))


@functools.cache
def log4j_settings(level: str = "warn") -> Path:
    """A log4j2 settings file that writes to the error stream from this level up."""
    text = _LOG4J.format(level=level)
    path = cache_folder() / f"log4j2-{content_key(text)}.properties"
    if not path.exists():
        path.write_text(text)
    return path


def class_data_archive() -> Path:
    """Where the archive for this Java and these jars is, or is to be."""
    key = content_key(java_version(), class_path())
    return cache_folder() / f"kafka-{KAFKA_VERSION}" / f"classes-{key}.jsa"


def java_command(
    main_class: str,
    arguments: Sequence[str | Path] = (),
    *,
    options: Sequence[str] = QUICK_JVM,
    appended_to_class_path: Path | None = None,
    log_level: str = "warn",
) -> list[str]:
    """The command line that runs a class of Kafka's jars (or of a folder of ours)."""
    archive = class_data_archive()
    speed = [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
    path = class_path()
    if appended_to_class_path is not None:
        # Appended: an archive stays valid when the class path only grows at its end.
        path = f"{path}:{appended_to_class_path}"
    return [
        java(),
        *options,
        *speed,
        "-Xshare:auto",
        "-Xlog:disable",
        "-Xlog:all=error:stderr",
        f"-Dlog4j2.configurationFile={log4j_settings(log_level)}",
        "-cp",
        path,
        main_class,
        *(str(argument) for argument in arguments),
    ]


def run_kafka_tool(
    main_class: str,
    arguments: Sequence[str | Path],
    *,
    timeout_seconds: float = 120,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run one of Kafka's command-line tools and return what it printed."""
    command = java_command(main_class, arguments, log_level="error")
    return run(command, timeout_seconds=timeout_seconds, environment=environment)
