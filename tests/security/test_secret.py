"""A secret appears in no text and no pickle; only `reveal` and a task's pickle have the value."""

import copy
import dataclasses
import json
import logging
import operator
import pickle
import pprint
from collections.abc import Callable

import pytest

from penstock.security.secret import HIDDEN, Secret, SecretForTask

CANARY = "canary-7f3a"


@dataclasses.dataclass(frozen=True, slots=True)
class Holder:
    name: str
    secret: Secret


@pytest.fixture(params=[Secret, SecretForTask])
def secret(request: pytest.FixtureRequest) -> Secret:
    created = request.param(CANARY)
    assert isinstance(created, Secret)
    return created


def test_reveal_is_the_way_to_the_value(secret: Secret) -> None:
    assert secret.reveal() == CANARY


def test_no_text_has_the_value(secret: Secret, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("penstock").warning("%s %r", secret, {"password": secret})
    texts = [
        str(secret),
        repr(secret),
        f"{secret}",
        f"{secret!s:>40}",
        f"{secret:>40}",
        "{:s}".format(secret),  # noqa: UP032 (the form is under test)
        "%s" % secret,  # noqa: UP031 (the form is under test)
        pprint.pformat([secret]),
        json.dumps({"a": secret}, default=str),
        repr(Holder("x", secret)),
        repr(dataclasses.asdict(Holder("x", secret))),
        caplog.text,
    ]
    for text in texts:
        assert HIDDEN in text
        assert CANARY not in text


def test_json_without_a_default_is_an_error(secret: Secret) -> None:
    with pytest.raises(TypeError) as error:
        json.dumps(secret)
    assert CANARY not in str(error.value)


@pytest.mark.parametrize("attempt", [iter, len, bytes, vars, list, operator.itemgetter(0)])
def test_it_has_no_parts(secret: Secret, attempt: Callable[[object], object]) -> None:
    with pytest.raises(TypeError):
        attempt(secret)


def test_it_cannot_be_changed(secret: Secret) -> None:
    with pytest.raises(AttributeError):
        secret._value = "other"
    with pytest.raises(AttributeError):
        del secret._value


def test_equal_by_value() -> None:
    assert Secret("ä\udc80") == Secret("ä\udc80")
    assert Secret("a") == Secret("a").for_task()
    assert hash(Secret("a")) == hash(Secret("a").for_task())
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert hash(Secret("a")) != hash("a")


def test_comparison_uses_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def compare(one: bytes, other: bytes) -> bool:
        calls.append((one, other))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    assert Secret("a") == Secret("a")
    assert calls == [(b"a", b"a")]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_loses_the_value(protocol: int) -> None:
    data = pickle.dumps([Secret(CANARY)], protocol)
    assert CANARY.encode() not in data
    assert pickle.loads(data)[0].reveal() == HIDDEN


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_for_a_task_keeps_it(protocol: int) -> None:
    loaded = pickle.loads(pickle.dumps(Secret(CANARY).for_task(), protocol))
    assert loaded.reveal() == CANARY
    assert str(loaded) == HIDDEN
    assert pickle.loads(pickle.dumps(loaded)).reveal() == CANARY


def test_copies_are_the_object_itself(secret: Secret) -> None:
    assert copy.copy(secret) is secret
    assert copy.deepcopy([secret])[0] is secret


def test_its_state_is_empty(secret: Secret) -> None:
    assert secret.__getstate__() is None  # type: ignore[func-returns-value]
