"""Settings of etcd, its version, and that nothing else needs gRPC."""

import subprocess
import sys

import pytest

from penstock.cluster.etcd.etcd_certificates import read_certificate_files
from penstock.cluster.etcd.etcd_options import Endpoint, EtcdOptions, parse_endpoint
from penstock.cluster.etcd.etcd_version import version_problem
from penstock.core.errors import ConfigError, StoreError
from penstock.security.secret import Secret

PLAIN = Endpoint("10.0.0.1", 2379, has_tls=False)
ENCRYPTED = Endpoint("etcd.example", 2379, has_tls=True)


@pytest.mark.parametrize(
    ("text", "endpoint", "target"),
    [
        ("10.0.0.1:2379", PLAIN, "10.0.0.1:2379"),
        ("http://10.0.0.1", PLAIN, "10.0.0.1:2379"),
        ("https://etcd.example:2379/", ENCRYPTED, "etcd.example:2379"),
        ("https://[::1]:7", Endpoint("::1", 7, has_tls=True), "[::1]:7"),
    ],
)
def test_addresses(text: str, endpoint: Endpoint, target: str) -> None:
    assert parse_endpoint(text) == endpoint
    assert endpoint.target == target


@pytest.mark.parametrize(
    "text", ["", "ftp://a:1", "a:99999", "http://a:1/path", "http://user@a:1", "http://a:0"]
)
def test_wrong_addresses(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write `https://host:2379`"):
        parse_endpoint(text)


def test_options_that_do_not_fit() -> None:
    with pytest.raises(ConfigError, match="no address"):
        EtcdOptions(())
    with pytest.raises(ConfigError, match="17 addresses, at most 16"):
        EtcdOptions((PLAIN,) * 17)
    with pytest.raises(ConfigError, match="with and without TLS"):
        EtcdOptions((PLAIN, ENCRYPTED))
    with pytest.raises(ConfigError, match="without TLS"):
        EtcdOptions((PLAIN,), ca_file="ca.pem")
    with pytest.raises(ConfigError, match="both its certificate"):
        EtcdOptions((ENCRYPTED,), certificate_file="c.pem")
    with pytest.raises(ConfigError, match=r"both `cluster\.etcd_user`"):
        EtcdOptions((PLAIN,), user="me")
    options = EtcdOptions((PLAIN,), user="me", password=Secret("hunter2"))
    assert options.has_credentials
    assert "hunter2" not in repr(options)


def test_a_certificate_that_is_not_there() -> None:
    with pytest.raises(StoreError, match=r"authority file for etcd, nowhere.pem, cannot be read"):
        read_certificate_files(EtcdOptions((ENCRYPTED,), ca_file="nowhere.pem"))


@pytest.mark.parametrize("version", ["3.4.23", "3.4.99", "3.5.27", "3.6.8", "2.3.8"])
def test_versions_with_defects(version: str) -> None:
    assert f"version {version}" in version_problem(version)


@pytest.mark.parametrize("version", ["3.5.28", "3.6.9", "3.6.16", "3.7.0", "4.0.0", "", "x"])
def test_versions_without(version: str) -> None:
    assert version_problem(version) == ""


def test_the_decisions_need_no_grpc() -> None:
    code = (
        "import sys; sys.modules['grpc'] = None\n"
        "import penstock.node.wiring\n"
        "import penstock.cluster.etcd.etcd_calls, penstock.cluster.etcd.watch_state\n"
        "import penstock.cluster.etcd.etcd_options, penstock.cluster.etcd.etcd_version\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
