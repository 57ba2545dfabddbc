"""Each thing that `penstock doctor` can find, with its remedy; and that sound facts are fine."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from penstock.cli.doctor.facts import (
    AddressFacts,
    AdvertisedFacts,
    ClockFacts,
    ClusterFacts,
    DirectoryFacts,
    LimitFacts,
    PortFacts,
    VersionFacts,
)
from penstock.cli.doctor.judging import (
    FINDING,
    FINE,
    NOTE,
    Judgement,
    judge_clock,
    judge_cluster,
    judge_directory,
    judge_limits,
    judge_port,
    judge_versions,
)
from penstock.core.settings.tree import Settings, settings_of

GIB = 1024**3
SETTINGS = Settings()
NOW_MS = 1_800_000_000_000

PORT = PortFacts("127.0.0.1", 9092)
DIRECTORY = DirectoryFacts(
    "/data", exists=True, free_bytes=50 * GIB, total_bytes=100 * GIB, filesystem="ext4", sync_ms=0.5
)
LIMITS = LimitFacts(1024, 1_048_576, 8 * GIB)
CLOCK = ClockFacts(NOW_MS, is_monotonic=True, is_synchronized=True)
GOOD = AddressFacts(
    "broker:9092", ("10.0.0.5",), speaks_kafka=True, answer_ms=3.0, cluster_id="abc"
)
CLUSTER = ClusterFacts((GOOD,), "abc", (AdvertisedFacts(1, GOOD),))


def levels(judgements: Iterable[Judgement]) -> set[str]:
    return {one.level for one in judgements}


def finding(judgements: Iterable[Judgement]) -> Judgement:
    """The only finding, which has a remedy."""
    (found,) = [one for one in judgements if one.level == FINDING]
    assert found.remedy
    return found


def test_sound_facts_are_fine() -> None:
    assert judge_port(PORT).level == FINE
    assert levels(judge_directory(DIRECTORY, SETTINGS)) == {FINE}
    assert levels(judge_limits(LIMITS, SETTINGS)) == {FINE}
    assert levels(judge_clock(CLOCK)) == {FINE}
    assert levels(judge_cluster(CLUSTER)) == {FINE}
    assert levels(judge_versions(VersionFacts("1", "3.11", True, {"spark": True}))) == {FINE}


def test_a_port_with_a_broker_is_fine() -> None:
    judged = judge_port(replace(PORT, is_taken=True, problem="in use", answers_as_broker=True))
    assert (judged.level, judged.words) == (FINE, "a broker answers at 127.0.0.1:9092")


def test_a_port_that_somebody_else_has() -> None:
    judged = judge_port(replace(PORT, is_taken=True, problem="in use", owner="process 7, nginx"))
    assert "process 7, nginx" in judged.words
    assert "--port 9093" in finding([judged]).remedy


def test_a_port_that_cannot_be_had() -> None:
    judged = judge_port(PortFacts("192.0.2.1", 80, problem="permission denied"))
    assert "permission denied" in finding([judged]).words


NAMED = PortFacts("127.0.0.1", 9093, listener="CLIENTS", protocol="SASL_SSL")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "127.0.0.1:9093 (listener CLIENTS) is free: a broker can listen there with SASL_SSL"),
        ({"port": 0}, "a broker takes a free port when it starts"),
        (
            {"is_taken": True, "answers_as_broker": True},
            "a broker answers at 127.0.0.1:9093 (listener CLIENTS) with SASL_SSL",
        ),
        ({"is_taken": True, "needs_client_certificate": True}, "requires a client certificate"),
    ],
)
def test_named_listeners_that_are_fine(change: dict[str, object], words: str) -> None:
    judged = judge_port(replace(NAMED, **change))  # type: ignore[arg-type]
    assert judged.level == FINE
    assert words in judged.words


@pytest.mark.parametrize(
    ("change", "words", "remedy"),
    [
        (
            {"is_taken": True, "speak_problem": "it does not answer in TLS."},
            "(listener CLIENTS), so a broker cannot: it does not answer in TLS",
            "set port of listener CLIENTS to 9094",
        ),
        (
            {"is_taken": True, "answers_as_broker": True, "serves_other_certificate": True},
            "has another certificate than the file of the settings",
            "Restart the broker",
        ),
        (
            {"problem": "cannot assign requested address"},
            "cannot assign requested address",
            "Set host of listener CLIENTS to an address of this machine",
        ),
    ],
)
def test_named_listeners_that_will_hurt(change: dict[str, object], words: str, remedy: str) -> None:
    judged = finding([judge_port(replace(NAMED, **change))])  # type: ignore[arg-type]
    assert words in judged.words
    assert remedy in judged.remedy


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        ({"is_directory": False}, "data", "is a file"),
        ({"is_writable": False}, "data", "permission denied"),
        ({"problem": "read-only file system"}, "data", "read-only file system"),
        ({"free_bytes": 1000}, "space", "produce is refused below"),
        ({"free_bytes": 200_000_000}, "space", "close to"),
        ({"filesystem": "tmpfs"}, "filesystem", "which is memory"),
        ({"filesystem": "nfs4"}, "filesystem", "a network"),
        ({"filesystem": "overlay"}, "filesystem", "goes with the container"),
        ({"sync_ms": 45.0}, "sync", "every acknowledgement waits"),
    ],
)
def test_directories_that_will_hurt(change: dict[str, object], check: str, words: str) -> None:
    found = finding(judge_directory(replace(DIRECTORY, **change), SETTINGS))  # type: ignore[arg-type]
    assert found.check == check
    assert words in found.words


def test_a_folder_to_be_made_is_fine_unless_it_cannot_be() -> None:
    absent = replace(DIRECTORY, exists=False, nearest="/")
    assert levels(judge_directory(absent, SETTINGS)) == {FINE}
    found = finding(judge_directory(replace(absent, is_writable=False), SETTINGS))
    assert found.words.startswith("/ cannot be written")


def test_notes_are_no_findings() -> None:
    assert levels(judge_directory(replace(DIRECTORY, sync_ms=0.001), SETTINGS)) == {FINE, NOTE}
    for mode in ("interval", "os"):
        settings = settings_of({"flush.mode": mode})
        slow = replace(DIRECTORY, sync_ms=45.0)
        assert levels(judge_directory(slow, settings)) == {FINE, NOTE}
    assert levels(judge_clock(replace(CLOCK, is_synchronized=False))) == {NOTE}
    memory = settings_of({"node.storage": "memory"})
    assert levels(judge_directory(DIRECTORY, memory)) == {NOTE}
    plain = VersionFacts("1", "3.11", is_compiled=False, extras={"spark": False})
    assert levels(judge_versions(plain)) == {FINE, NOTE}


def test_the_share_of_the_disk_counts_too() -> None:
    settings = settings_of({"disk.free_percent_min": 60.0})
    assert finding(judge_directory(DIRECTORY, settings)).check == "space"


def test_too_few_open_files() -> None:
    found = finding(judge_limits(replace(LIMITS, files_hard=1024), SETTINGS))
    assert found.check == "files"
    assert "ulimit -Hn" in found.remedy


@pytest.mark.parametrize(
    "change",
    [{"memory_available_bytes": 1_000_000}, {"memory_limit_bytes": 1_000_000}],
)
def test_too_little_memory(change: dict[str, int]) -> None:
    assert finding(judge_limits(replace(LIMITS, **change), SETTINGS)).check == "memory"


def test_memory_that_is_not_told_is_a_note() -> None:
    unknown = replace(LIMITS, memory_available_bytes=0)
    assert levels(judge_limits(unknown, SETTINGS)) == {FINE, NOTE}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"now_ms": 1000}, "before 2025"),
        ({"is_monotonic": False}, "went back"),
        ({"broker_newest_ms": NOW_MS + 60_000}, "60.0 s in the future"),
    ],
)
def test_clocks_that_will_hurt(change: dict[str, object], words: str) -> None:
    assert words in finding(judge_clock(replace(CLOCK, **change))).words  # type: ignore[arg-type]


def test_a_brokers_past_says_nothing_of_its_clock() -> None:
    assert levels(judge_clock(replace(CLOCK, broker_newest_ms=NOW_MS - 10**9))) == {FINE}


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (AddressFacts("x:1", resolve_problem="name not known"), "does not resolve"),
        (AddressFacts("x:1", ("10.0.0.1",), connect_problem="refused"), "is unreachable"),
        (AddressFacts("x:1", ("10.0.0.1",), speak_problem="HTTP"), "does not answer as a broker"),
    ],
)
def test_a_bootstrap_address_that_fails(seen: AddressFacts, words: str) -> None:
    assert words in finding(judge_cluster(ClusterFacts((seen,)))).words


@pytest.mark.parametrize(
    ("change", "words", "remedy"),
    [
        ({"is_refused": True, "speak_problem": "refused the login."}, "cannot use: r", "settings"),
        ({"is_refused": True, "speak_remedy": "Set sasl.mechanism."}, "cannot use", "(--command-c"),
        ({"speak_problem": "HTTP", "speak_remedy": "Give the port."}, "HTTP", "Give the port."),
    ],
)
def test_the_remedy_of_the_client_is_used(
    change: dict[str, object], words: str, remedy: str
) -> None:
    seen = replace(AddressFacts("x:1", ("10.0.0.1",)), **change)  # type: ignore[arg-type]
    found = finding(judge_cluster(ClusterFacts((seen,))))
    assert words in found.words
    assert remedy in found.remedy


def test_one_good_bootstrap_address_is_enough_to_go_on() -> None:
    bad = AddressFacts("x:1", ("10.0.0.1",), connect_problem="refused")
    judged = list(judge_cluster(replace(CLUSTER, bootstrap=(bad, GOOD))))
    assert finding(judged).check == "bootstrap"
    assert judged[-1].check == "advertised"


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (AddressFacts("inside:9092", resolve_problem="name not known"), "does not resolve"),
        (replace(GOOD, connect_problem="timed out"), "is unreachable"),
        (replace(GOOD, speaks_kafka=False, speak_problem="TLS"), "does not answer as a broker"),
        (replace(GOOD, address="localhost:9092", resolved=("127.0.0.1",)), "the machine itself"),
        (replace(GOOD, address="0.0.0.0:9092", resolved=("0.0.0.0",)), "not the address of a host"),
        (replace(GOOD, cluster_id="other"), "another cluster"),
    ],
)
def test_an_advertised_address_that_will_hurt(seen: AddressFacts, words: str) -> None:
    found = finding(judge_cluster(replace(CLUSTER, advertised=(AdvertisedFacts(1, seen),))))
    assert found.check == "advertised"
    assert words in found.words
    assert "advertised_host" in found.remedy


def test_beside_the_broker_loopback_is_fine() -> None:
    local = replace(GOOD, address="localhost:9092", resolved=("127.0.0.1", "::1"))
    facts = ClusterFacts((local,), "abc", (AdvertisedFacts(1, local),))
    assert levels(judge_cluster(facts)) == {FINE}


def test_a_cluster_that_does_not_tell_its_brokers() -> None:
    found = finding(judge_cluster(ClusterFacts((GOOD,), problem="UNKNOWN_SERVER_ERROR")))
    assert found.check == "metadata"
