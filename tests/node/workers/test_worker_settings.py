"""The settings of each worker, and the settings that workers cannot have."""

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import load_settings
from penstock.core.settings.tree import Settings
from penstock.node.workers.worker_settings import check_workers, worker_settings


def given(text: str = "", **flags: object) -> Settings:
    return load_settings(
        text, {}, {key.replace("__", "."): value for key, value in flags.items()}
    ).settings


def test_each_worker_has_its_own_id_directory_and_ports() -> None:
    base = given(node__data_dir="data", node__id=10, listener__port=9092, admin__port=8080)
    first, third = worker_settings(base, 1), worker_settings(base, 3)
    assert (first.node.id, third.node.id) == (10, 12)
    assert (first.data_dir, third.data_dir) == ("data/worker-1", "data/worker-3")
    assert (first.listener.port, third.listener.port) == (9093, 9095)
    assert (first.admin.port, third.admin.port) == (8080, 8082)


def test_a_free_port_stays_one() -> None:
    found = worker_settings(given(listener__port=0, admin__port=0), 2)
    assert (found.listener.port, found.admin.port) == (0, 0)


def test_the_default_admin_port_is_the_first_workers() -> None:
    assert worker_settings(given(), 2).admin.port == 8081


NAMED = """
[[listeners]]
name = "INSIDE"
port = 9092
protocol = "PLAINTEXT"
[[listeners]]
name = "OUTSIDE"
host = "127.0.0.1"
port = {port}
advertised_host = "broker.example"
advertised_port = 443
protocol = "PLAINTEXT"
"""


def test_named_listeners_move_too() -> None:
    inside, outside = worker_settings(given(NAMED.format(port=9192)), 2).listeners
    assert (inside.port, inside.advertised_port) == (9094, None)
    assert (outside.port, outside.advertised_port) == (9194, 445)
    assert outside.advertised_host == "broker.example"


def test_workers_reach_each_other_on_this_machine_only() -> None:
    text = '[cluster]\nlisten_host = "0.0.0.0"\nreplication_factor_default = 2\n'
    cluster = worker_settings(given(text), 1).cluster
    assert (cluster.listen_host, cluster.listen_port) == ("127.0.0.1", 0)
    assert cluster.replication_factor_default == 2
    assert cluster.internal_replication_factor == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[cluster]\netcd = ["http://a:2379"]\nlisten_port = 1\n', "cluster.etcd are both set"),
        ('[node]\nstorage = "memory"\n', 'node.storage is "memory"'),
        (NAMED.format(port=9094), "INSIDE needs the ports 9092 to 9095 and the listener OUTSIDE"),
        ("[listener]\nport = 8079\n", "PLAINTEXT needs the ports 8079 to 8082 and the admin ports"),
        ("[listener]\nport = 65534\n", "65534 to 65537, above 65535"),
        ("[listener]\nadvertised_port = 65534\n", "advertise port 65537, above 65535"),
    ],
)
def test_settings_that_workers_cannot_have(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_workers(given(text), 3)


def test_ordinary_settings_are_fine() -> None:
    check_workers(given(), 64)
    check_workers(given(NAMED.format(port=9192)), 3)
    check_workers(given("[listener]\nport = 8079\n[admin]\nenabled = false\n"), 3)
