"""Settings that are valid alone and contradict each other are refused, with the remedy."""

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import load_settings

TLS = 'tls = { certificate = "server.crt", key = "server.key" }'
PROVIDER = {"issuer": "https://login", "audience": "penstock", "jwks": "keys.json"}


def problem(text: str) -> str:
    """The message about these settings; empty if they are accepted."""
    try:
        load_settings(text, {}, {})
    except ConfigError as error:
        return str(error)
    return ""


def listener(mechanism: str) -> str:
    return (
        '[[listeners]]\nname = "CLIENTS"\nport = 1\nprotocol = "SASL_SSL"\n'
        f'mechanisms = ["{mechanism}"]\n{TLS}\n'
    )


def oidc(left_out: str) -> str:
    lines = [f'{name} = "{value}"' for name, value in PROVIDER.items() if name != left_out]
    return "\n".join(["[oidc]", *lines, ""])


DOORS = {
    "listener": (listener("OAUTHBEARER"), "the listener CLIENTS with OAUTHBEARER"),
    "admin": ('[admin]\nauth = "bearer"\n', 'admin.auth = "bearer"'),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", PROVIDER)
def test_a_token_is_verified_in_full_or_not_accepted(door: str, name: str) -> None:
    text, owner = DOORS[door]
    assert f"{owner} needs oidc.{name}. Set it." in problem(text + oidc(name))
    assert problem(text + oidc("")) == ""


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        (listener("PLAIN"), "the listener CLIENTS with PLAIN"),
        ('[admin]\nauth = "basic"\n', 'admin.auth = "basic"'),
    ],
)
def test_a_password_has_a_verifier(text: str, owner: str) -> None:
    file = '[security]\nplain_verifier = "file"\n'
    assert f"{owner} needs security.users_file" in problem(text + file)
    assert problem(f'{text}{file}users_file = "users.txt"\n') == ""
    ldap = '[security]\nplain_verifier = "ldap"\n[ldap]\n'
    assert f"{owner} needs ldap.url. Set it." in problem(text + ldap)
    assert "neither ldap.user_dn_template nor ldap.search_base" in problem(text + ldap)
    complete = 'url = "ldaps://directory"\nsearch_base = "dc=example"\n'
    assert problem(text + ldap + complete) == ""
    assert "begins neither with" in problem(text + ldap + complete.replace("ldaps:", "http:"))
    assert problem(text) == ""


def test_credentials_of_a_closed_door_need_no_verifier() -> None:
    closed = '[admin]\nenabled = false\nauth = "bearer"\n'
    assert problem(closed) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('host = "10.0.0.7"\n', "may administer this broker"),
        ('host = "10.0.0.7"\nauth = "basic"\n', "receives credentials without TLS"),
        ('certificate = "a"\n', "admin.certificate and admin.key belong together"),
        ('auth = "mtls"\n', "needs admin.certificate, admin.key and admin.client_ca"),
    ],
)
def test_the_admin_port(text: str, words: str) -> None:
    assert words in problem(f"[admin]\n{text}")


def test_the_admin_port_with_tls() -> None:
    text = '[admin]\nhost = "10.0.0.7"\ncertificate = "a"\nkey = "b"\n'
    assert problem(f'{text}auth = "basic"\n') == ""
    assert problem(f'{text}auth = "mtls"\nclient_ca = "c"\n') == ""


@pytest.mark.parametrize("users", ["admin", "User:", ":admin", "User:admin;ops"])
def test_super_users_are_principals(users: str) -> None:
    assert "is not a principal" in problem(f'[security]\nsuper_users = "{users}"\n')


def test_a_fixed_identity_is_for_tests() -> None:
    text = (
        '[security]\nallow_insecure = true\n[[listeners]]\nname = "A"\nhost = "10.0.0.7"\n'
        'port = 1\nprotocol = "PLAINTEXT"\nprincipal = "User:admin"\n'
    )
    assert "the fixed identity User:admin" in problem(text)
    assert problem(f'[node]\nstorage = "memory"\n{text}') == ""
    assert problem(text.replace("10.0.0.7", "127.0.0.1")) == ""


def test_one_place_names_the_addresses() -> None:
    text = '[listener]\nport = 9\n[[listeners]]\nname = "A"\nport = 1\nprotocol = "PLAINTEXT"\n'
    assert "listener.port (settings file line 2) and [[listeners]] both name" in problem(text)


def test_a_listener_on_each_address_has_a_name_for_clients() -> None:
    text = f'[[listeners]]\nname = "A"\nhost = "0.0.0.0"\nport = 1\nprotocol = "SSL"\n{TLS}\n'
    assert "Set its advertised_host" in problem(text)
    assert problem(text.replace("port", 'advertised_host = "a"\nport', 1)) == ""
