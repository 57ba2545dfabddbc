"""Credentials of users: decisions, writes, values without passwords, and lost answers."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import scram_changes
from penstock.cluster.access.security_service import change_scram, create_first_user
from penstock.cluster.access_draft import ScramChanged
from penstock.cluster.changes import apply
from penstock.cluster.differences import difference
from penstock.cluster.image import MetadataImage, ScramImage
from penstock.cluster.keys import KeyKind, Keys, ParsedKey
from penstock.cluster.scram_changes import (
    ScramChange,
    ScramDecision,
    ScramDeletion,
    ScramUpsertion,
    decide_scram,
    scram_writes,
)
from penstock.cluster.service import MetadataService
from penstock.cluster.stores.port import Compare, Delete, Put
from penstock.cluster.values import read_scram, write_scram
from penstock.core.errors import (
    DuplicateUserError,
    PenstockError,
    PolicyViolationError,
    StoreError,
    UnacceptableCredentialError,
    UnknownMechanismError,
    UnknownUserError,
)
from penstock.core.limits import STORE_OPERATIONS_MAX
from penstock.core.security_limits import SCRAM_SALT_BYTES_MAX
from penstock.security.sasl_client import SCRAM_SHA_256, SCRAM_SHA_512
from penstock.security.scram_credential import ScramCredential, credential_of
from penstock.testing.memory_store import Fault, MemoryMetadataStore
from tests.cluster.test_service import loaded, run, settled

KEYS = Keys()
CANARY = b"salted password of alice"
CREDENTIAL = credential_of(SCRAM_SHA_256, CANARY, b"salt", 4096)
OTHER = credential_of(SCRAM_SHA_256, b"another", b"pepper", 8192)


def upsert(
    user: str = "alice",
    mechanism: str | None = SCRAM_SHA_256,
    *,
    iterations: int = 4096,
    credential: ScramCredential | None = CREDENTIAL,
) -> ScramUpsertion:
    return ScramUpsertion(user, mechanism, iterations, credential)


def delete(user: str = "alice", mechanism: str | None = SCRAM_SHA_256) -> ScramDeletion:
    return ScramDeletion(user, mechanism)


def image_with(*users: str) -> MetadataImage:
    return apply(
        MetadataImage(),
        [ScramChanged(SCRAM_SHA_256, user, ScramImage(CREDENTIAL, 5, 9)) for user in users],
        9,
    )


def decided_scram(image: MetadataImage, changes: Sequence[ScramChange]) -> ScramDecision:
    steps = decide_scram(image, changes)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            decision = end.value
            assert isinstance(decision, ScramDecision)
            return decision


# --- Values and keys ---


@given(st.binary(max_size=70), st.binary(max_size=70), st.binary(max_size=70), st.integers(1))
def test_a_credential_reads_back(salt: bytes, stored: bytes, server: bytes, count: int) -> None:
    credential = ScramCredential(salt, stored, server, count)
    assert read_scram(write_scram(credential, 77), 9) == ScramImage(credential, 77, 9)


def test_a_stored_value_has_no_password_and_no_text_shows_the_keys() -> None:
    value = write_scram(CREDENTIAL, 77)
    assert CANARY not in value
    image = image_with("alice")
    shown = f"{CREDENTIAL} {image.scram['SCRAM-SHA-256', 'alice']!r} {upsert()!r}"
    for secret in (CREDENTIAL.salt, CREDENTIAL.stored_key, CREDENTIAL.server_key):
        assert repr(secret)[2:-1] not in shown
    assert "[hidden]" in shown


@pytest.mark.parametrize(
    "value",
    [
        b"{}",
        b'{"v":1,"salt":"","stored_key":"?","server_key":"","iterations":1,"created_ms":1}',
        b'{"v":1,"salt":"","stored_key":"","server_key":"","created_ms":1}',
    ],
)
def test_a_damaged_credential_raises_the_one_error(value: bytes) -> None:
    with pytest.raises(StoreError):
        read_scram(value, 1)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30))
def test_a_user_reads_back_from_its_key(user: str) -> None:
    key = KEYS.scram(SCRAM_SHA_512, user)
    assert key.isascii()
    assert KEYS.parse(key) == ParsedKey(KeyKind.SCRAM, f"{SCRAM_SHA_512}/{user}")


# --- Decisions ---


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (upsert(""), UnacceptableCredentialError, "Username must not be empty"),
        (upsert("", None), UnacceptableCredentialError, "Username must not be empty"),
        (upsert(mechanism=None), UnknownMechanismError, "Unknown SCRAM mechanism"),
        (upsert(mechanism=None, iterations=1), UnknownMechanismError, "Unknown SCRAM mechanism"),
        (upsert(iterations=4095), UnacceptableCredentialError, "Too few iterations"),
        (upsert(iterations=-1), UnacceptableCredentialError, "Too few iterations"),
        (upsert(iterations=16385), UnacceptableCredentialError, "Too many iterations"),
        (upsert("u" * 256), UnacceptableCredentialError, "longer than 255 bytes"),
        (upsert("a\nb"), UnacceptableCredentialError, "SASLprep"),
        (upsert("ﬁne"), UnacceptableCredentialError, "SASLprep"),
        (upsert(credential=None), UnacceptableCredentialError, "Salted password must not be"),
        (
            upsert(credential=CREDENTIAL._replace(salt=bytes(SCRAM_SALT_BYTES_MAX + 1))),
            UnacceptableCredentialError,
            "Salt must not be longer",
        ),
        (delete("nobody"), UnknownUserError, "delete a user credential that does not exist"),
        (delete(mechanism=SCRAM_SHA_512), UnknownUserError, "that does not exist"),
        (delete("", None), UnacceptableCredentialError, "Username must not be empty"),
        (delete(mechanism=None), UnknownMechanismError, "Unknown SCRAM mechanism"),
    ],
)
def test_changes_that_are_refused(
    change: ScramChange, kind: type[PenstockError], text: str
) -> None:
    decision = decided_scram(image_with("alice"), [change, upsert("other")])
    assert isinstance(decision.outcomes[change.user], kind)
    assert text in str(decision.outcomes[change.user])
    assert decision.outcomes["other"] is None
    assert decision.accepted == (upsert("other"),)


@pytest.mark.parametrize("user", ["grün", "ops=team+1@example.org", "a b", "u" * 255, "שלום"])
def test_names_that_are_accepted(user: str) -> None:
    assert decided_scram(MetadataImage(), [upsert(user)]).outcomes == {user: None}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ([upsert(), upsert()], DuplicateUserError),
        ([upsert(), upsert(mechanism=SCRAM_SHA_512)], DuplicateUserError),
        ([delete(), upsert()], DuplicateUserError),
        ([delete(), delete()], DuplicateUserError),
        ([delete(), upsert(), upsert()], DuplicateUserError),
        ([upsert(), upsert(iterations=1)], DuplicateUserError),
        # The first mention decides if it is wrong by itself.
        ([upsert(iterations=1), upsert()], UnacceptableCredentialError),
        ([delete(mechanism=None), delete()], UnknownMechanismError),
        ([delete(mechanism=SCRAM_SHA_512), upsert()], UnknownUserError),
        ([upsert(mechanism=None), upsert(mechanism=None)], UnknownMechanismError),
    ],
)
def test_a_user_is_named_once(changes: list[ScramChange], kind: type[PenstockError]) -> None:
    decision = decided_scram(image_with("alice"), changes)
    assert [type(one) for one in decision.outcomes.values()] == [kind]
    assert decision.accepted == ()


def test_requests_and_credentials_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scram_changes, "SCRAM_CREDENTIALS_MAX", 2)
    monkeypatch.setattr(scram_changes, "SCRAM_CHANGES_PER_REQUEST_MAX", 3)
    decision = decided_scram(image_with("alice"), [upsert("b"), upsert("c"), upsert("alice")])
    assert decision.accepted == (upsert("b"), upsert("alice"))
    assert isinstance(decision.outcomes["c"], PolicyViolationError)
    many = [upsert(name) for name in "abcd"]
    decision = decided_scram(MetadataImage(), many)
    assert decision.accepted == ()
    assert {str(one) for one in decision.outcomes.values()} == {
        "Unable to perform excessively large batch operation."
    }


def test_a_write_compares_with_the_last_one() -> None:
    changes: list[ScramChange] = [delete(), upsert("new")]
    (write,) = scram_writes(KEYS, image_with("alice"), changes, 77, ())
    old, new = KEYS.scram(SCRAM_SHA_256, "alice"), KEYS.scram(SCRAM_SHA_256, "new")
    assert write.compares == (Compare.unchanged(old, 9), Compare.unchanged(new, 0))
    assert write.operations == (Delete(old), Put(new, write_scram(CREDENTIAL, 77)))


USERS = st.dictionaries(
    st.tuples(st.sampled_from([SCRAM_SHA_256, SCRAM_SHA_512]), st.sampled_from("abc")),
    st.sampled_from([ScramImage(CREDENTIAL, 1, 1), ScramImage(OTHER, 2, 2)]),
)


@given(USERS, USERS)
def test_a_difference_leads_from_one_image_to_the_other(
    first: dict[tuple[str, str], ScramImage], second: dict[tuple[str, str], ScramImage]
) -> None:
    before, after = (
        apply(MetadataImage(), [ScramChanged(*key, one) for key, one in users.items()], revision)
        for revision, users in ((1, first), (2, second))
    )
    assert apply(before, difference(before, after), 2) == after


# --- The service ---


@settings(max_examples=10)
@given(st.lists(st.sampled_from([Fault.NONE, Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])))
def test_changes_survive_lost_answers(faults: list[Fault]) -> None:
    many = [f"user-{number}" for number in range(STORE_OPERATIONS_MAX + 2)]

    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.extend(faults[:10])
        added = await change_scram(service, [upsert(one) for one in many], now_ms=5)
        assert added == dict.fromkeys(many)
        changed = await change_scram(
            service, [upsert(many[0], credential=OTHER), upsert("", None)], now_ms=6
        )
        assert changed[many[0]] is None
        assert service.image.scram[SCRAM_SHA_256, many[0]].credential == OTHER
        assert service.image.scram[SCRAM_SHA_256, many[0]].created_ms == 6
        gone = await change_scram(service, [delete(one) for one in many], now_ms=7)
        assert gone == dict.fromkeys(many)
        assert not service.image.scram
        store.faults.clear()
        await settled(service, store)
        assert await loaded(store) == service.image

    run(body)


def test_nothing_is_written_for_refused_changes() -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        revision = service.image.revision
        await change_scram(service, [delete("nobody")], now_ms=5)
        await settled(service, store)
        assert service.image.revision == revision

    run(body)


FIRST = (upsert(), upsert(mechanism=SCRAM_SHA_512, credential=OTHER))


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.LOST, Fault.ANSWER_LOST, Fault.LATE])
def test_the_first_user_is_created_whole_in_one_transaction(fault: Fault) -> None:
    async def body(service: MetadataService, store: MemoryMetadataStore) -> None:
        store.faults.append(fault)
        assert await create_first_user(service, FIRST, now_ms=5)
        stored = service.image.scram
        assert set(stored) == {(SCRAM_SHA_256, "alice"), (SCRAM_SHA_512, "alice")}
        assert len({one.revision for one in stored.values()}) == 1

    run(body)


def test_a_cluster_with_a_user_gets_no_first_one() -> None:
    async def body(service: MetadataService, _store: MemoryMetadataStore) -> None:
        await change_scram(service, [upsert("bob")], now_ms=5)
        assert not await create_first_user(service, FIRST, now_ms=6)
        assert set(service.image.scram) == {(SCRAM_SHA_256, "bob")}

    run(body)


def test_a_first_user_that_is_refused_is_not_created_in_part() -> None:
    async def body(service: MetadataService, _store: MemoryMetadataStore) -> None:
        with pytest.raises(UnacceptableCredentialError):
            await create_first_user(service, (FIRST[0], upsert(iterations=1)), now_ms=5)
        assert not service.image.scram

    run(body)
