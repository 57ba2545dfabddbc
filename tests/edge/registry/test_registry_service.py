"""Operations of the registry: keys, roles, revisions, conflicts, restarts, a failing disk."""

import pytest

from penstock.edge.registry.documents import (
    REVISION_MAX,
    Health,
    LevelPatch,
    NodePatch,
    TopologyDocument,
)
from penstock.edge.registry.identities import token_identity
from penstock.edge.registry.node_roles import Role
from penstock.edge.registry.registry_errors import RegistryRefusedError, RegistryStoreError
from penstock.edge.registry.registry_service import Caller
from tests.edge.registry.stage import START_MS, Scene, caller_of, registration


@pytest.fixture
def scene() -> Scene:
    return Scene()


def poll(scene: Scene, node_id: str, instance: int = 1) -> TopologyDocument:
    return scene.service.poll(node_id, instance, caller_of(node_id))


def refusal(status: int, words: str) -> "pytest.RaisesExc[RegistryRefusedError]":
    return pytest.RaisesExc(
        RegistryRefusedError,
        match=words,
        check=lambda error: error.status == status and bool(error.remedy),
    )


def test_a_node_joins_and_gets_its_place(scene: Scene) -> None:
    scene.create("root", "ROOT")
    scene.service.set_level(Role.POS, LevelPatch(down=("prices",), up=("sales.{id}",)))
    found = scene.service.register("store", registration(wanted_role=Role.POS), caller_of("store"))
    assert (found.role, found.down, found.up, found.instance) == (
        Role.POS,
        ("prices",),
        ("sales.store",),
        1,
    )
    assert found.parent is not None
    assert (found.parent.id, found.parent.addresses) == ("root", {"kafka": "host:9092"})


def test_a_caller_without_a_key_is_refused(scene: Scene) -> None:
    with refusal(401, "not proven"):
        scene.service.register("store", registration(), Caller(None))
    with refusal(401, "not proven"):
        scene.service.poll("store", 1, Caller(None))


def test_a_new_node_needs_the_join_token_or_an_operator(scene: Scene) -> None:
    stranger = caller_of("store", has_joined=False)
    with refusal(403, "has not shown the join token"):
        scene.service.register("store", registration(), stranger)
    token = scene.service.issue_token("store").token
    invited = Caller(token_identity(token))
    assert scene.service.register("store", registration(), invited).instance == 1


def test_the_name_is_not_the_identity(scene: Scene) -> None:
    scene.create("store", "POS")
    with refusal(403, "belongs to another key"):
        scene.service.register("store", registration(), caller_of("thief"))
    with refusal(403, "belongs to another key"):
        scene.service.poll("store", 1, caller_of("thief"))


def test_a_new_key_ends_the_old_one(scene: Scene) -> None:
    scene.create("store", "POS")
    token = scene.service.issue_token("store").token
    with refusal(403, "belongs to another key"):
        poll(scene, "store")
    assert scene.service.poll("store", 1, Caller(token_identity(token))).id == "store"
    assert token not in repr(scene.store), "only the digest is stored"


@pytest.mark.parametrize("role", [Role.ROOT, Role.L2, Role.L3])
def test_a_role_that_feeds_others_needs_an_operator(scene: Scene, role: Role) -> None:
    given = registration(wanted_role=role)
    with refusal(403, "which feeds other nodes"):
        scene.service.register("store", given, caller_of("store"))
    assert scene.store.nodes == {}
    scene.create("store", role.value)
    assert scene.service.register("store", given, caller_of("store")).role is role


def test_a_wish_does_not_outlive_the_choice_of_an_operator(scene: Scene) -> None:
    scene.create("store", "POS")
    scene.service.register("store", registration(wanted_role=Role.ROOT), caller_of("store"))
    found = scene.service.patch("store", NodePatch(role=None))
    assert found.role is Role.LOCAL


def test_the_revision_rises_only_with_a_change(scene: Scene) -> None:
    scene.create("root", "ROOT")
    scene.create("store", "POS")
    first, writes = poll(scene, "store"), scene.store.writes
    assert [poll(scene, "store") for _ in range(3)] == [first] * 3
    assert scene.store.writes == writes, "a poll that changes nothing writes nothing"
    other = registration(addresses={"kafka": "moved:9092"})
    scene.service.register("root", other, caller_of("root"))
    second = poll(scene, "store")
    assert second.revision > first.revision
    assert second.parent is not None
    assert second.parent.addresses == {"kafka": "moved:9092"}


def test_topics_of_a_level_reach_its_nodes_with_the_next_poll(scene: Scene) -> None:
    scene.create("store", "POS")
    before = poll(scene, "store")
    scene.service.set_level(Role.POS, LevelPatch(down=("prices",)))
    after = poll(scene, "store")
    assert (before.down, after.down) == ((), ("prices",))
    assert after.revision > before.revision
    scene.service.set_level(Role.POS, LevelPatch(up=("sales",)))
    assert poll(scene, "store").down == ("prices",), "the other direction stays"


def test_a_restart_changes_nothing_but_the_revision(scene: Scene) -> None:
    scene.create("root-1", "ROOT")
    scene.create("root-2", "ROOT")
    scene.create("store", "POS")
    before = poll(scene, "store")
    scene.clock.advance(86_400)
    scene.restart()
    after = poll(scene, "store")
    assert after.parent == before.parent, "a restart moves no child"
    assert after.revision >= START_MS + 86_400_000


def test_a_registry_from_a_backup_is_followed(scene: Scene) -> None:
    scene.create("store", "POS")
    backup = dict(scene.store.nodes), scene.store.revision
    scene.service.set_level(Role.POS, LevelPatch(down=("prices",)))
    newest = poll(scene, "store").revision
    scene.store.nodes, scene.store.revision = backup
    scene.clock.advance(60)
    scene.restart()
    assert poll(scene, "store").revision > newest


def test_a_clock_that_jumps_back_lowers_no_revision(scene: Scene) -> None:
    scene.create("store", "POS")
    before = poll(scene, "store").revision
    scene.clock.date_ms = 0
    scene.restart()
    assert poll(scene, "store").revision > before


def test_a_clock_of_the_year_9999_gives_no_absurd_revision(scene: Scene) -> None:
    scene.create("store", "POS")
    scene.clock.date_ms = 253_402_300_799_000
    scene.restart()
    revision = poll(scene, "store").revision
    scene.clock.date_ms = START_MS
    scene.restart()
    assert revision < poll(scene, "store").revision < REVISION_MAX


def test_children_of_a_gone_parent_move_and_a_removed_parent_too(scene: Scene) -> None:
    scene.create("root-1", "ROOT")
    scene.create("root-2", "ROOT")
    scene.create("store", "POS")
    first = poll(scene, "store").parent
    assert first is not None
    other = "root-2" if first.id == "root-1" else "root-1"
    scene.clock.advance(299)
    poll(scene, other)
    assert poll(scene, "store").parent == first
    scene.clock.advance(1)
    second = poll(scene, "store").parent
    assert second is not None
    assert second.id == other
    scene.service.remove(other)
    poll(scene, first.id)
    assert poll(scene, "store").parent == first


def test_a_cloned_disk_is_refused_and_reported(scene: Scene) -> None:
    scene.create("store", "POS")
    poll(scene, "store")
    scene.clock.advance(30)
    copy = registration(boot="c0" * 8, instance=1)
    for _ in range(2):
        with refusal(409, "another process of node store was seen 30 s ago"):
            scene.service.register("store", copy, caller_of("store", address="192.0.2.99"))
    assert scene.service.node("store").state == "HEALTHY", "it may be a restart"
    assert poll(scene, "store").instance == 1, "the first goes on"
    found = scene.service.node("store")
    assert (found.state, found.conflict is not None) == ("DEGRADED", True)
    assert found.conflict is not None
    assert (found.conflict.address, found.conflict.times) == ("192.0.2.99", 2)
    scene.service.patch("store", NodePatch(new_instance=True))
    assert scene.service.register("store", copy, caller_of("store")).instance == 2
    with refusal(409, "the caller has instance 1"):
        poll(scene, "store", 1)


def test_a_restart_is_no_conflict(scene: Scene) -> None:
    scene.create("store", "POS")
    poll(scene, "store")
    restarted = registration(boot="c0" * 8, instance=1)
    with refusal(409, "another process of node store"):
        scene.service.register("store", restarted, caller_of("store"))
    scene.clock.advance(90)
    assert scene.service.register("store", restarted, caller_of("store")).instance == 2
    assert poll(scene, "store", 2).instance == 2
    assert scene.service.node("store").conflict is None


def test_an_old_disk_is_reported_at_once(scene: Scene) -> None:
    scene.create("store", "POS")
    poll(scene, "store")
    scene.clock.advance(90)
    scene.service.register("store", registration(boot="c0" * 8, instance=1), caller_of("store"))
    poll(scene, "store", 2)
    with refusal(409, "a copy of another disk or an old backup"):
        scene.service.register("store", registration(boot="d0" * 8, instance=1), caller_of("store"))
    assert scene.service.node("store").conflict is not None


def test_operators_cannot_choose_a_parent_below(scene: Scene) -> None:
    scene.create("store", "POS")
    scene.create("local", "LOCAL")
    with refusal(409, "which is not above POS"):
        scene.service.patch("store", NodePatch(parent="local"))
    assert scene.service.patch("local", NodePatch(parent="store")).pinned_parent == "store"


def test_states_of_nodes(scene: Scene) -> None:
    scene.service.issue_token("new")
    scene.create("store", "POS")
    health = Health(state="UNHEALTHY", reason="no contact", lag_records=7, lag_seconds=1.5)
    scene.service.register("store", registration(health=health), caller_of("store"))
    new, store = scene.service.tree().nodes
    assert (new.state, new.seen_seconds_ago) == ("NEW", None)
    assert (store.state, store.reason, store.lag_records) == ("UNHEALTHY", "no contact", 7)
    scene.service.register("store", registration(), caller_of("store"))
    assert scene.service.node("store").state == "HEALTHY"
    scene.clock.advance(90)
    assert scene.service.node("store").reason == "not seen for 90 s"


def test_unknown_nodes(scene: Scene) -> None:
    with refusal(404, "there is no node x"):
        poll(scene, "x")
    with refusal(404, "there is no node x"):
        scene.service.patch("x", NodePatch())
    with refusal(404, "there is no node x"):
        scene.service.remove("x")
    with refusal(404, "there is no node x"):
        scene.service.node("x")


def test_the_number_of_nodes_is_bounded() -> None:
    scene = Scene(nodes_max=1)
    scene.create("one", "ROOT")
    with refusal(503, "has 1 nodes"):
        scene.service.register("two", registration(), caller_of("two"))
    with refusal(503, "has 1 nodes"):
        scene.service.issue_token("two")


def test_a_change_that_is_not_stored_did_not_happen(scene: Scene) -> None:
    scene.create("root", "ROOT")
    scene.create("store", "POS")
    before = poll(scene, "store")
    scene.store.is_failing = True
    with pytest.raises(RegistryStoreError):
        scene.service.patch("store", NodePatch(role=Role.LOCAL))
    with pytest.raises(RegistryStoreError):
        scene.service.remove("root")
    with pytest.raises(RegistryStoreError):
        scene.service.set_level(Role.POS, LevelPatch(down=("prices",)))
    assert poll(scene, "store") == before, "a poll that changes nothing works on a full disk"
