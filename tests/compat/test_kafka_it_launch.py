"""The shim's arguments to a launch script, and the script's settings; no broker is started."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from compat.kafka_it.console import selectors
from compat.kafka_it.launch import CLASSES, SUITE, write_script
from compat.kafka_it.launch_arguments import LaunchArguments, read_arguments, read_properties
from compat.kafka_it.launch_kafka import server_settings
from compat.kafka_it.launch_penstock import unsupported
from compat.suite import read_names

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


def test_penstock_serves_one_plaintext_broker_and_says_what_it_does_not(tmp_path: Path) -> None:
    assert unsupported(node(tmp_path)) is None
    refused = [
        node(tmp_path, {**PLAIN, "EXTERNAL_SECURITY": "SASL_PLAINTEXT"}),
        node(tmp_path, {**PLAIN, "EXTERNAL_ROLES": "controller"}),
        node(tmp_path, settings=AUTHORIZER),
    ]
    assert all((unsupported(each) or "").startswith("error: ") for each in refused)


def test_the_script_runs_the_module_with_the_arguments_of_the_shim(tmp_path: Path) -> None:
    script = write_script(tmp_path, "penstock")
    path = tmp_path / "p"
    path.write_text("")
    done = subprocess.run(
        [script, path, "1", "0", tmp_path / "data"],
        env={**os.environ, **PLAIN, "EXTERNAL_ROLES": "controller"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert sys.executable in script.read_text()
    assert (done.returncode, done.stderr.partition(" (")[0]) == (
        2,
        "error: node without the broker role",
    )


def test_every_listed_test_belongs_to_a_class_that_is_run() -> None:
    classes = {name.rpartition(".")[2] for name in CLASSES}
    names = read_names(SUITE.kafka_list) | read_names(SUITE.penstock_list)
    assert names
    assert {name.partition(".")[0] for name in names} <= classes


def test_a_class_and_a_method_are_selected_by_short_name() -> None:
    full = "kafka.server.ShareGroupDescribeRequestTest"
    assert selectors(CLASSES, ["ShareGroupDescribeRequestTest.testX"]) == [
        ["-c", full, "--include-methodname", f".*{full}#testX.*"]
    ]
