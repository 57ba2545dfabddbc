"""DescribeUserScramCredentials and AlterUserScramCredentials, as Kafka does them."""

import pytest

from penstock.protocol.error_codes import ErrorCode
from tests.broker.handlers.acls import (
    SHA_256,
    SHA_512,
    alter,
    deletion,
    upsertion,
    users,
)
from tests.broker.handlers.asker import Asker, fresh_name

DONE = (0, None)
FOUND = (0, "")
TWICE = (
    int(ErrorCode.DUPLICATE_RESOURCE),
    "A user credential cannot be altered twice in the same request",
)
NO_MECHANISM = (int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), "Unknown SCRAM mechanism")
FEW = (int(ErrorCode.UNACCEPTABLE_CREDENTIAL), "Too few iterations")
NOT_FOUND = (
    int(ErrorCode.RESOURCE_NOT_FOUND),
    "Attempt to delete a user credential that does not exist",
)


@pytest.fixture
def user(asker: Asker) -> str:
    """A user with one credential."""
    name = fresh_name("user")
    assert alter(asker, upsertion(name)) == {name: DONE}
    asker.until(lambda: users(asker, [name]) == {name: (FOUND, {SHA_256: 4096})})
    return name


def test_credentials_are_set_changed_and_deleted(asker: Asker, user: str) -> None:
    assert alter(asker, upsertion(user, SHA_512, iterations=16384)) == {user: DONE}
    both = {user: (FOUND, {SHA_256: 4096, SHA_512: 16384})}
    asker.until(lambda: users(asker, [user]) == both)
    assert users(asker)[user] == both[user]
    assert users(asker, [])[user] == both[user]
    assert alter(asker, upsertion(user, iterations=5000)) == {user: DONE}
    asker.until(lambda: users(asker, [user])[user][1][SHA_256] == 5000)
    assert alter(asker, deletion(user, SHA_512)) == {user: DONE}
    asker.until(lambda: users(asker, [user]) == {user: (FOUND, {SHA_256: 5000})})
    assert alter(asker, deletion(user)) == {user: DONE}
    asker.until(lambda: user not in users(asker))


@pytest.mark.parametrize("name", ["grün", "ops=team+1@example.org", "a b", "a/b", "a:b"])
def test_names_of_users(asker: Asker, name: str) -> None:
    name += fresh_name()
    assert alter(asker, upsertion(name)) == {name: DONE}
    asker.until(lambda: users(asker, [name]) == {name: (FOUND, {SHA_256: 4096})})


def test_users_that_do_not_exist_and_users_named_twice(asker: Asker, user: str) -> None:
    code = int(ErrorCode.RESOURCE_NOT_FOUND)
    text = "Attempt to describe a user credential that does not exist: "
    twice = (
        int(ErrorCode.DUPLICATE_RESOURCE),
        f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}",
    )
    assert users(asker, [user, "nobody", "", user]) == {
        user: (twice, {}),
        "nobody": ((code, text + "nobody"), {}),
        "": ((code, text), {}),
    }


@pytest.mark.parametrize("mechanism", [0, 3, -1])
def test_unknown_mechanisms(asker: Asker, user: str, mechanism: int) -> None:
    assert alter(asker, upsertion(user, mechanism)) == {user: NO_MECHANISM}
    assert alter(asker, deletion(user, mechanism)) == {user: NO_MECHANISM}


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_iterations_have_limits(asker: Asker, mechanism: int) -> None:
    name = fresh_name("user")
    many = (int(ErrorCode.UNACCEPTABLE_CREDENTIAL), "Too many iterations")
    for iterations in (-1, 0, 4095):
        assert alter(asker, upsertion(name, mechanism, iterations=iterations)) == {name: FEW}
    for iterations in (16385, 2**31 - 1):
        assert alter(asker, upsertion(name, mechanism, iterations=iterations)) == {name: many}
    for iterations in (4096, 16384):
        assert alter(asker, upsertion(name, mechanism, iterations=iterations)) == {name: DONE}


def test_a_name_is_not_empty(asker: Asker) -> None:
    empty = (int(ErrorCode.UNACCEPTABLE_CREDENTIAL), "Username must not be empty")
    for change in (upsertion(""), upsertion("", 9, iterations=1), deletion(""), deletion("", 9)):
        assert alter(asker, change) == {"": empty}


def test_a_credential_that_does_not_exist_is_not_deleted(asker: Asker, user: str) -> None:
    assert alter(asker, deletion("nobody")) == {"nobody": NOT_FOUND}
    assert alter(asker, deletion(user, SHA_512)) == {user: NOT_FOUND}


def test_a_user_is_named_once_in_a_request(asker: Asker, user: str) -> None:
    for changes in (
        (upsertion(user), upsertion(user)),
        (upsertion(user), upsertion(user, SHA_512)),
        (deletion(user), deletion(user)),
        (deletion(user), upsertion(user)),
        (deletion(user), upsertion(user), upsertion(user)),
        (upsertion(user), upsertion(user, iterations=1)),
        (deletion(user), upsertion(user, iterations=1)),
    ):
        assert alter(asker, *changes) == {user: TWICE}
    # The first mention decides if it is wrong by itself.
    assert alter(asker, upsertion(user, iterations=1), upsertion(user)) == {user: FEW}
    assert alter(asker, deletion(user, SHA_512), upsertion(user)) == {user: NOT_FOUND}
    assert alter(asker, deletion(user, 9), deletion(user)) == {user: NO_MECHANISM}
    assert users(asker, [user]) == {user: (FOUND, {SHA_256: 4096})}


def test_each_user_has_its_own_outcome(asker: Asker, user: str) -> None:
    good, bad = fresh_name("user"), fresh_name("user")
    changes = (upsertion(good), upsertion(bad, iterations=1), deletion(user), deletion("nobody"))
    assert alter(asker, *changes) == {good: DONE, bad: FEW, user: DONE, "nobody": NOT_FOUND}
    asker.until(lambda: good in users(asker) and user not in users(asker))
    assert bad not in users(asker)


def test_a_request_without_changes(asker: Asker) -> None:
    assert alter(asker) == {}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 256, "Username must not be longer than 255 bytes"),
        ("a\nb", "Username must not change when it is prepared with SASLprep"),
        ("ﬁne", "Username must not change when it is prepared with SASLprep"),
    ],
)
def test_names_that_only_kafka_accepts(penstock: Asker, name: str, message: str) -> None:
    code = int(ErrorCode.UNACCEPTABLE_CREDENTIAL)
    assert alter(penstock, upsertion(name)) == {name: (code, message)}


def test_an_empty_password_is_refused(penstock: Asker) -> None:
    """Kafka answers UNKNOWN_SERVER_ERROR."""
    code = int(ErrorCode.UNACCEPTABLE_CREDENTIAL)
    assert alter(penstock, upsertion("u", salted_password=b"")) == {
        "u": (code, "Salted password must not be empty")
    }
