"""Facts to a level with reasons; every reason has a remedy, and whether new clients may connect."""

from dataclasses import replace

import pytest

from penstock.admin.health import (
    FLUSH_SECONDS_MAX,
    DirectoryFacts,
    Facts,
    Level,
    judge,
)
from penstock.core.limit_use import LimitUse
from tests.admin.fakes import HEALTHY


def with_directory(**changes: object) -> Facts:
    return replace(HEALTHY, directories=(replace(HEALTHY.directories[0], **changes),))  # type: ignore[arg-type]


def with_limit(name: str, current: int, limit: int = 100) -> Facts:
    return replace(HEALTHY, limits=(LimitUse(name, current, limit, None, "things"),))


def test_nothing_to_say() -> None:
    verdict = judge(HEALTHY)
    assert verdict.level is Level.HEALTHY
    assert verdict.reasons == ()
    assert verdict.is_ready


@pytest.mark.parametrize(
    ("facts", "code", "level", "is_ready"),
    [
        (replace(HEALTHY, is_started=False), "starting", Level.CRITICAL, False),
        (replace(HEALTHY, is_stopping=True), "stopping", Level.CRITICAL, False),
        (with_directory(room="low"), "disk-low", Level.DEGRADED, True),
        (with_directory(room="none"), "disk-full", Level.CRITICAL, True),
        (with_directory(failure="EIO"), "directory-offline", Level.CRITICAL, False),
        (
            with_directory(flush_seconds=FLUSH_SECONDS_MAX + 1),
            "flush-stuck",
            Level.CRITICAL,
            False,
        ),
        (with_limit("connections", 90), "connections-near-limit", Level.DEGRADED, True),
        (with_limit("connections", 100), "connections-at-limit", Level.CRITICAL, False),
        (
            with_limit("request_bytes_handled", 100),
            "request_bytes_handled-at-limit",
            Level.DEGRADED,
            True,
        ),
        (
            with_limit("requests_in_flight", 100),
            "requests_in_flight-at-limit",
            Level.DEGRADED,
            True,
        ),
        (
            with_limit("unsent_answer_bytes", 95),
            "unsent_answer_bytes-near-limit",
            Level.DEGRADED,
            True,
        ),
        (with_limit("parked_requests", 100), "parked_requests-at-limit", Level.CRITICAL, True),
        (with_limit("parked_partitions", 100), "parked_partitions-at-limit", Level.DEGRADED, True),
        (with_limit("partitions", 100), "partitions-at-limit", Level.DEGRADED, True),
        (with_limit("something_new", 100), "something_new-at-limit", Level.DEGRADED, True),
        (replace(HEALTHY, offline_partitions=2), "partitions-damaged", Level.CRITICAL, True),
        (replace(HEALTHY, coordinators_failed=1), "coordinators-failed", Level.CRITICAL, True),
        (replace(HEALTHY, settings_refusal="no."), "settings-refused", Level.DEGRADED, True),
        (replace(HEALTHY, declared_topic_problems=1), "declared-topics", Level.DEGRADED, True),
        (replace(HEALTHY, pipe_problems=("pipe hq: gap",)), "pipes", Level.DEGRADED, True),
        (
            replace(HEALTHY, dead_letter_problems=("dead letters of g wait",)),
            "dead-letters",
            Level.DEGRADED,
            True,
        ),
        (replace(HEALTHY, coordinators_loading=5), "coordinators-loading", Level.DEGRADED, True),
    ],
)
def test_each_reason(facts: Facts, code: str, level: Level, is_ready: bool) -> None:
    verdict = judge(facts)
    assert [reason.code for reason in verdict.reasons] == [code]
    assert verdict.level is level
    assert verdict.is_ready is is_ready
    (reason,) = verdict.reasons
    assert reason.message.endswith(".") or ": EIO" in reason.message
    assert reason.remedy.endswith(".")


def test_below_the_marks_nothing_is_said() -> None:
    facts = replace(
        HEALTHY,
        directories=(DirectoryFacts("data", "enough", flush_seconds=FLUSH_SECONDS_MAX),),
        limits=(LimitUse("connections", 89, 100, None, "connections"),),
    )
    assert judge(facts).level is Level.HEALTHY


def test_a_disk_is_judged_by_its_marks_not_by_its_share() -> None:
    assert judge(with_limit("disk_used_bytes", 100)).level is Level.HEALTHY


def test_an_offline_directory_is_not_called_full_as_well() -> None:
    verdict = judge(with_directory(failure="EIO", room="none", flush_seconds=99))
    assert [reason.code for reason in verdict.reasons] == ["directory-offline"]


def test_partitions_of_an_offline_directory_are_not_called_damaged() -> None:
    verdict = judge(replace(with_directory(failure="EIO"), offline_partitions=3))
    offline, partitions = verdict.reasons
    assert (offline.code, partitions.code) == ("directory-offline", "partitions-damaged")
    assert "directory is offline" in partitions.message
    assert partitions.remedy.startswith("Repair the directory first")


def test_parked_requests_say_what_clients_see() -> None:
    (requests,) = judge(with_limit("parked_requests", 100)).reasons
    assert "answered at once with the available records" in requests.message
    assert "a waiting produce with a timeout" in requests.message
    (partitions,) = judge(with_limit("parked_partitions", 100)).reasons
    assert "answered at once with the available records" in partitions.message
    assert "See docs" not in partitions.remedy


def test_the_worst_comes_first() -> None:
    facts = replace(
        HEALTHY,
        is_stopping=True,
        coordinators_loading=1,
        directories=(DirectoryFacts("data", "none"),),
    )
    codes = [reason.code for reason in judge(facts).reasons]
    assert codes == ["stopping", "disk-full", "coordinators-loading"]


def test_a_limit_of_time_is_never_near() -> None:
    limits = (LimitUse("slow_reader", None, 30.0, 7, "seconds"),)
    assert judge(replace(HEALTHY, limits=limits)).level is Level.HEALTHY
