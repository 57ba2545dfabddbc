"""The shim's arguments to a launch script, and the script's settings; no broker is started."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from compat.kafka_it.console import selectors
from compat.kafka_it.launch import (
    CLASSES,
    ONE_BROKER_CLASSES,
    SUITE,
    shim_options,
    write_script,
)
from compat.kafka_it.launch_arguments import LaunchArguments, read_arguments, read_properties
from compat.kafka_it.launch_kafka import server_settings
from compat.kafka_it.launch_penstock import (
    cluster_environment,
    login_environment,
    settings_environment,
    unknown_settings,
    with_controller_settings,
)
from compat.kafka_it.penstock_listeners import (
    PRINCIPALS,
    Listener,
    UnsupportedNodeError,
    listeners_of,
    listeners_text,
)
from compat.suite import read_names
from penstock.core.settings.config import load_settings
from penstock.security.sasl.password_file import parse_users, password_matches
from penstock.security.secret import Secret

PLAIN = {"EXTERNAL_CONTROLLER": "0@127.0.0.1:3", "EXTERNAL_LISTENER": "OUTSIDE"}
AUTHORIZER = {"authorizer.class.name": "x"}


def node(
    folder: Path, environment: Mapping[str, str] = PLAIN, settings: Mapping[str, str] | None = None
) -> LaunchArguments:
    path = folder / "p"
    path.write_text("".join(f"{name}={value}\n" for name, value in (settings or {}).items()))
    return read_arguments([str(path), "9000", "7", str(folder / "data")], environment)


def test_properties_are_read_as_java_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "p"
    path.write_text("#date\na.b=x\\:y\\=z\nlistener\\:name=a \\\\ \\#b\nempty=\n")
    assert read_properties(path) == {
        "a.b": "x:y=z",
        "listener:name": "a \\ #b",
        "empty": "",
    }


def test_a_broker_that_is_controller_too_listens_for_both(tmp_path: Path) -> None:
    settings = server_settings(node(tmp_path, settings={"num.partitions": "4"}))
    assert settings["listeners"] == "OUTSIDE://127.0.0.1:9000,CONTROLLER://127.0.0.1:3"
    assert settings["inter.broker.listener.name"] == "OUTSIDE"
    assert settings["process.roles"] == "broker,controller"
    assert settings["num.partitions"] == "4"
    assert settings["node.id"] == "7"


def test_a_separate_controller_has_one_listener_and_no_rack(tmp_path: Path) -> None:
    environment = {**PLAIN, "EXTERNAL_ROLES": "controller"}
    settings = server_settings(node(tmp_path, environment, {"broker.rack": "a"}))
    assert settings["listeners"] == "CONTROLLER://127.0.0.1:3"
    assert "broker.rack" not in settings
    assert "inter.broker.listener.name" not in settings


def test_an_old_node_id_of_the_test_does_not_contradict_the_new_one(tmp_path: Path) -> None:
    settings = server_settings(node(tmp_path, settings={"broker.id": "1000"}))
    assert settings["node.id"] == "7"
    assert "broker.id" not in settings


def test_an_authorizer_gets_a_listener_for_super_users(tmp_path: Path) -> None:
    environment = {**PLAIN, "EXTERNAL_ADMIN_PORT": "9001"}
    assert (
        "BROKER://127.0.0.1:9001"
        in server_settings(node(tmp_path, environment, AUTHORIZER))["listeners"]
    )
    assert "BROKER://" not in server_settings(node(tmp_path, environment))["listeners"]


def test_listeners_of_a_test_are_kept(tmp_path: Path) -> None:
    own = {
        "listeners": "CLIENT://127.0.0.1:5",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT",
    }
    settings = server_settings(node(tmp_path, settings=own))
    assert settings["listeners"] == "CLIENT://127.0.0.1:5,CONTROLLER://127.0.0.1:3"
    assert settings["listener.security.protocol.map"] == "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT"


def test_sasl_adds_users_and_keeps_the_authorizer_of_the_test(tmp_path: Path) -> None:
    environment = {**PLAIN, "EXTERNAL_SECURITY": "SASL_PLAINTEXT"}
    settings = server_settings(node(tmp_path, environment, AUTHORIZER))
    assert settings["authorizer.class.name"] == "x"
    assert settings["super.users"] == "User:plain-admin"
    assert "plain-user1" in settings["listener.name.outside.plain.sasl.jaas.config"]


def test_penstock_gets_the_listeners_and_principals_of_the_test(tmp_path: Path) -> None:
    builder, principals = next(iter(PRINCIPALS.items()))
    own = {
        "listeners": "CLIENT://127.0.0.1:5,BROKER://127.0.0.1:6,CONTROLLER://127.0.0.1:7",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "principal.builder.class": builder,
    }
    assert listeners_of(node(tmp_path, settings=own)) == [
        Listener("CLIENT", "127.0.0.1", 5, "PLAINTEXT", principals["CLIENT"]),
        Listener("BROKER", "127.0.0.1", 6, "PLAINTEXT", principals["BROKER"]),
    ]


def test_penstock_gets_a_listener_for_super_users_with_an_authorizer(tmp_path: Path) -> None:
    environment = {**PLAIN, "EXTERNAL_ADMIN_PORT": "9001"}
    ports = [each.port for each in listeners_of(node(tmp_path, environment, AUTHORIZER))]
    assert ports == [9000, 9001]
    assert [each.port for each in listeners_of(node(tmp_path, environment))] == [9000]


def test_the_settings_file_of_penstock_has_the_listeners(tmp_path: Path) -> None:
    environment = {**PLAIN, "EXTERNAL_SECURITY": "SASL_PLAINTEXT"}
    with_login = node(tmp_path, environment)
    open_listener = Listener("OPEN", "127.0.0.1", 6, "PLAINTEXT", 'Group:it\'s "x"')
    text = listeners_text([*listeners_of(with_login), open_listener])
    with_login.data_dir.mkdir()
    variables = {**settings_environment(with_login), **login_environment(with_login)}
    settings = load_settings(text, variables, {}).settings
    found = [(each.name, each.port, each.mechanisms, each.principal) for each in settings.listeners]
    assert found == [
        ("OUTSIDE", 9000, ("PLAIN",), None),
        ("OPEN", 6, (), open_listener.principal),
    ]
    assert settings.security.authorizer == "acl"
    assert settings.security.super_users == "User:plain-admin"


def test_penstock_gets_the_users_of_kafkas_test_kit(tmp_path: Path) -> None:
    with_login = node(tmp_path, {**PLAIN, "EXTERNAL_SECURITY": "SASL_PLAINTEXT"})
    with_login.data_dir.mkdir()
    users_file = login_environment(with_login)["PENSTOCK_SECURITY__USERS_FILE"]
    users = parse_users(Path(users_file).read_text())
    assert set(users) == {"plain-admin", "plain-user1"}
    assert password_matches(users["plain-user1"], Secret("plain-user1-secret"))
    assert login_environment(node(tmp_path)) == {}


def test_penstock_refuses_nodes_that_it_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedNodeError, match="protocol SSL"):
        listeners_of(node(tmp_path, {**PLAIN, "EXTERNAL_SECURITY": "SSL"}))
    with pytest.raises(UnsupportedNodeError, match=r"Builder not known"):
        listeners_of(node(tmp_path, settings={"principal.builder.class": "a.Builder"}))


def test_one_broker_of_penstock_is_alone_and_several_share_etcd(tmp_path: Path) -> None:
    alone = node(tmp_path)
    assert load_settings("", cluster_environment(alone), {}).settings.cluster.is_set is False
    member = node(tmp_path, {**PLAIN, "EXTERNAL_ROLES": "broker"})
    cluster = load_settings("", cluster_environment(member), {}).settings.cluster
    assert cluster.etcd == ("http://127.0.0.1:3",)


def test_milliseconds_of_a_test_become_seconds_within_the_limits(tmp_path: Path) -> None:
    own = {"broker.session.timeout.ms": "1000", "replica.lag.time.max.ms": "2500"}
    variables = settings_environment(node(tmp_path, settings=own))
    cluster = load_settings("", variables, {}).settings.cluster
    assert (cluster.session_seconds, cluster.replica_lag_seconds_max) == (3.0, 2.5)


def test_share_groups_are_off_in_tests_without_their_feature(tmp_path: Path) -> None:
    for features, is_enabled in (("", True), ("share.version=1", True), ("share.version=0", False)):
        variables = settings_environment(node(tmp_path, {**PLAIN, "EXTERNAL_FEATURES": features}))
        assert load_settings("", variables, {}).settings.groups.share_enabled is is_enabled


def test_a_broker_of_penstock_gets_settings_of_the_controller_after_its_own(tmp_path: Path) -> None:
    controller_file = tmp_path / "server-0.properties"
    controller_file.write_text("num.partitions=5\ndefault.replication.factor=2\n")
    broker = with_controller_settings(
        node(tmp_path, settings={"num.partitions": "4"}), controller_file
    )
    assert broker.settings == {"num.partitions": "4", "default.replication.factor": "2"}


def test_settings_that_penstock_does_not_have_are_named() -> None:
    settings = {"num.partitions": "4", "log.dirs": "x", "replica.fetch.min.bytes": "7"}
    assert unknown_settings(settings) == ["replica.fetch.min.bytes=7"]


def test_the_older_harness_starts_no_etcd_for_one_broker_of_penstock() -> None:
    assert set(CLASSES) >= ONE_BROKER_CLASSES
    one = next(iter(ONE_BROKER_CLASSES))
    assert shim_options("penstock", one) == {}
    assert shim_options("kafka", one) == {"external.controller": "true"}
    assert shim_options("penstock", CLASSES[0]) == {"external.controller": "true"}


def test_the_script_runs_the_module_with_the_arguments_of_the_shim(tmp_path: Path) -> None:
    script = write_script(tmp_path, "penstock")
    path = tmp_path / "p"
    path.write_text("")
    done = subprocess.run(
        [script, path, "1", "0", tmp_path / "data"],
        env={**os.environ, **PLAIN, "EXTERNAL_SECURITY": "SSL"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert sys.executable in script.read_text()
    assert (done.returncode, done.stderr.partition(",")[0]) == (
        2,
        "error: listener OUTSIDE has the protocol SSL",
    )


def test_every_listed_test_belongs_to_a_class_that_is_run() -> None:
    classes = {name.rpartition(".")[2] for name in CLASSES}
    names = read_names(SUITE.kafka_list) | read_names(SUITE.penstock_list)
    assert names
    assert {name.partition(".")[0] for name in names} <= classes


def test_a_class_and_a_method_are_selected_by_short_name() -> None:
    full = "kafka.server.ShareGroupDescribeRequestTest"
    assert selectors(CLASSES, ["ShareGroupDescribeRequestTest.testX"]) == [
        [
            "-c",
            full,
            "--include-methodname",
            r".*kafka\.server\.ShareGroupDescribeRequestTest#testX.*",
        ]
    ]
