"""Producers in other languages for the load of a cluster: Java, Go and JavaScript.

Guarantees: `command_of(client)` is the command of a program that has the arguments and prints the
lines of `tests.crash.load`, built by the language's own tool into the cache folder under the hash
of its source. A missing tool is an error that names it, never a skip.

The clients are libraries of their own, not wrappers of librdkafka: Apache Kafka's Java client,
franz-go, kafkajs.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.interop.client_drivers import kafkajs_folder, node
from tests.oracle.cache import built, content_key, progress, run, tool
from tests.oracle.kafka_jars import class_path, java_command, java_version

CLIENTS: Final = Path(__file__).resolve().parent / "clients"


def _java() -> list[str]:
    javac = tool("javac", "install a JDK, 17 or later (Debian: default-jdk-headless)")
    source = CLIENTS / "java" / "Load.java"

    def build(folder: Path) -> None:
        progress("compiling Load.java")
        run([javac, "-nowarn", "-d", folder, "-cp", class_path(), source])

    key = content_key(source, java_version(), class_path())
    return java_command("Load", appended_to_class_path=built(f"chaos/java-load-{key}", build))


def _franz_go() -> list[str]:
    go = tool("go", "install Go, 1.21 or later: it fetches the newer toolchain it needs")
    source = CLIENTS / "franz_go"
    files = [source / "go.mod", source / "go.sum", source / "main.go"]

    def build(folder: Path) -> None:
        progress("building the franz-go load")
        run([go, "build", "-o", folder / "load", "."], folder=source)

    return [str(built(f"chaos/franz-go-{content_key(*files)}", build) / "load")]


def _kafkajs() -> list[str]:
    # The program is outside of the folder in which npm installed the library.
    modules = kafkajs_folder() / "node_modules"
    program = str(CLIENTS / "kafkajs" / "load.js")
    return ["env", f"NODE_PATH={modules}", node(), "--no-warnings", program]


COMMANDS: Final[dict[str, Callable[[], list[str]]]] = {
    "java": _java,
    "franz-go": _franz_go,
    "kafkajs": _kafkajs,
}


def command_of(client: str) -> list[str] | None:
    """The command of this client; None for a client of `tests.crash.load`."""
    return COMMANDS[client]() if client in COMMANDS else None
