"""The settings of each worker, from those of `penstock serve --workers N`. Pure.

A listener with port P is the bootstrap address, which all workers accept from. Worker K has the
port P + K for itself and advertises it: clients find it by the bootstrap address. Admin ports are
consecutive, beginning with that of the settings. Worker K has the node id of the settings + K - 1
and the directory `worker-K`. Workers connect to each other on 127.0.0.1, on free ports.
"""

from collections.abc import Iterator
from typing import Final

from penstock.core.errors import ConfigError
from penstock.core.settings.admin_settings import ADMIN_PORT_DEFAULT
from penstock.core.settings.listener_declarations import NamedListener
from penstock.core.settings.tree import ListenerSettings, Settings

PORT_MAX: Final = 65_535
_ON_THIS_MACHINE: Final = {
    "listen_host": "127.0.0.1",
    "listen_port": 0,
    "advertised_host": None,
    "advertised_port": None,
    "tls_certificate": None,
    "tls_key": None,
    "tls_key_password_file": None,
    "tls_ca": None,
    "internal_replication_factor": 1,
}
"""How a worker's settings of `[cluster]` differ: workers log in instead of TLS."""


def worker_directory(data_dir: str, number: int) -> str:
    """Return the data directory of a worker."""
    return f"{data_dir}/worker-{number}"


def worker_settings(settings: Settings, number: int) -> Settings:
    """Return the settings of one worker; the first one is number 1."""
    node = settings.node.model_copy(
        update={
            "id": settings.node.id + number - 1,
            "data_dir": worker_directory(settings.node.data_dir, number),
        }
    )
    listener = settings.listener.model_copy(update=_moved(settings.listener, number))
    listeners = tuple(one.model_copy(update=_moved(one, number)) for one in settings.listeners)
    admin_port = _after(admin_base(settings), number - 1)
    admin = settings.admin.model_copy(update={"port": admin_port})
    cluster = settings.cluster.model_copy(update=_ON_THIS_MACHINE)
    return settings.model_copy(
        update={
            "node": node,
            "listener": listener,
            "listeners": listeners,
            "admin": admin,
            "cluster": cluster,
        }
    )


def admin_base(settings: Settings) -> int:
    """Return the admin port of the first worker; 0: each worker takes a free one."""
    return ADMIN_PORT_DEFAULT if settings.admin.port is None else settings.admin.port


def _moved(listener: ListenerSettings | NamedListener, number: int) -> dict[str, int | None]:
    advertised = listener.advertised_port
    return {
        "port": _after(listener.port, number),
        "advertised_port": None if advertised is None else advertised + number,
    }


def _after(port: int, steps: int) -> int:
    """Return a later port; 0, a free one, stays."""
    return port + steps if port else 0


def check_workers(settings: Settings, count: int) -> None:
    """Raise `ConfigError` for settings that workers cannot have."""
    for problem in _problems(settings, count):
        raise problem


def _problems(settings: Settings, count: int) -> Iterator[ConfigError]:
    if settings.cluster.is_set:
        yield ConfigError(
            "--workers and cluster.etcd are both set: workers share their metadata in the data "
            "directory, and brokers with cluster.etcd share it in etcd.",
            hint="Remove one of them.",
        )
    if settings.node.storage == "memory":
        yield ConfigError(
            '--workers is set and node.storage is "memory": the metadata would outlive the records '
            "of a worker that is restarted.",
            hint='Set node.storage = "disk", or leave --workers out.',
        )
    for listener in settings.all_listeners:
        if (listener.advertised_port or 0) + count > PORT_MAX:
            yield ConfigError(
                f"worker {count} would advertise port {(listener.advertised_port or 0) + count}, "
                f"above {PORT_MAX}.",
                hint="Choose a lower advertised_port.",
            )
    yield from _overlaps(list(_ranges(settings, count)))


def _ranges(settings: Settings, count: int) -> Iterator[tuple[str, range]]:
    """Yield the ports of each listener and of the admin ports."""
    for listener in settings.all_listeners:
        if listener.port:
            ports = range(listener.port, listener.port + count + 1)
            yield f"the listener {listener.name}", ports
    base = admin_base(settings)
    if settings.admin.enabled and base:
        yield "the admin ports", range(base, base + count)


def _overlaps(ranges: list[tuple[str, range]]) -> Iterator[ConfigError]:
    for index, (name, ports) in enumerate(ranges):
        if ports[-1] > PORT_MAX:
            yield ConfigError(
                f"{name} would need the ports {ports[0]} to {ports[-1]}, above {PORT_MAX}.",
                hint="Choose a lower port, or fewer workers.",
            )
        for other, taken in ranges[:index]:
            if ports[0] <= taken[-1] and taken[0] <= ports[-1]:
                yield ConfigError(
                    f"with these workers, {other} needs the ports {taken[0]} to {taken[-1]} and "
                    f"{name} {ports[0]} to {ports[-1]}.",
                    hint="Choose ports that are further apart.",
                )
