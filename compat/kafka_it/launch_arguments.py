"""The contract between the shim and a launch script, as one value.

    python -m compat.kafka_it.launch_kafka PROPERTIES-FILE PORT NODE-ID DATA-FOLDER

The environment has the rest; the class comment of `shim/ExternalProcess.java` lists it. This module
reads both. It does NOT decide what a broker makes of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LaunchArguments:
    """One node to start."""

    settings: Mapping[str, str]
    """Settings of the test, in Kafka's names."""
    port: int
    node_id: int
    data_dir: Path
    roles: frozenset[str]
    """`broker`, `controller` or both."""
    controller: str
    """`id@host:port` of the controller."""
    security: str
    """Security protocol of the client listener."""
    listener: str
    admin_port: int | None
    """Port of the listener whose clients are super users."""
    features: str
    """`name=level,...`"""

    @property
    def controller_id(self) -> str:
        """Node id of the controller; its settings file lies next to the one of this node."""
        return self.controller.partition("@")[0]


def read_properties(path: Path) -> dict[str, str]:
    """A Java properties file as `Properties.store` writes it."""
    result = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition("=")
            result[_unescape(name)] = _unescape(value)
    return result


def _unescape(text: str) -> str:
    characters = iter(text)
    return "".join(next(characters, "") if each == "\\" else each for each in characters)


def read_arguments(words: Sequence[str], environment: Mapping[str, str]) -> LaunchArguments:
    """Read the command line and the environment of a launch script."""
    properties, port, node_id, data_dir = words
    admin_port = environment.get("EXTERNAL_ADMIN_PORT")
    return LaunchArguments(
        settings=read_properties(Path(properties)),
        port=int(port),
        node_id=int(node_id),
        data_dir=Path(data_dir),
        roles=frozenset(environment.get("EXTERNAL_ROLES", "broker,controller").split(",")),
        controller=environment["EXTERNAL_CONTROLLER"],
        security=environment.get("EXTERNAL_SECURITY", "PLAINTEXT"),
        listener=environment.get("EXTERNAL_LISTENER", "EXTERNAL"),
        admin_port=int(admin_port) if admin_port else None,
        features=environment.get("EXTERNAL_FEATURES", ""),
    )
