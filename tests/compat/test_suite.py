"""How runs of foreign suites are held against their lists; none of the suites is run here."""

from pathlib import Path

from compat.kafka_it.run import CLASSES, PROPERTIES
from compat.librdkafka import run as librdkafka
from compat.suite import Result, Verdict, judge, read_names, replication_factor, write_names
from tests.oracle.penstock_broker import penstock_environment

KAFKA = frozenset({"a", "b", "c", "d"})
NONE: frozenset[str] = frozenset()


def test_a_test_that_passed_before_and_fails_now_is_lost() -> None:
    verdict = judge({"a": Result.FAILED, "b": Result.PASSED}, KAFKA, frozenset({"a", "b"}))
    assert verdict == Verdict(passed=frozenset("b"), lost=frozenset("a"), behind=NONE)


def test_a_test_that_is_skipped_now_is_lost_too() -> None:
    assert judge({"a": Result.SKIPPED}, KAFKA, frozenset({"a"})).lost == {"a"}


def test_what_passes_on_kafka_and_never_passed_here_is_behind() -> None:
    verdict = judge({"a": Result.PASSED, "c": Result.FAILED}, KAFKA, frozenset({"a"}))
    assert verdict == Verdict(passed=frozenset("a"), lost=NONE, behind=frozenset("c"))


def test_tests_that_did_not_run_say_nothing() -> None:
    verdict = judge({"a": Result.PASSED}, KAFKA, frozenset({"a", "b"}))
    assert verdict == Verdict(passed=frozenset("a"), lost=NONE, behind=NONE)


def test_what_fails_on_kafka_is_not_asked_here() -> None:
    verdict = judge({"only here": Result.FAILED}, KAFKA, frozenset())
    assert verdict == Verdict(passed=NONE, lost=NONE, behind=NONE)


def test_a_list_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    assert read_names(path) == frozenset()
    write_names(path, frozenset({"b(x)[1]", "a"}))
    assert path.read_text() == "a\nb(x)[1]\n"
    assert read_names(path) == {"a", "b(x)[1]"}


def test_settings_of_kafka_become_settings_of_penstock_where_there_are_any() -> None:
    given = {"group.min.session.timeout.ms": "100", "delete.topic.enable": "true"}
    assert penstock_environment(given) == {"PENSTOCK_GROUPS__SESSION_TIMEOUT_MS_MIN": "100"}
    authorizer = {"authorizer.class.name": "org.apache.kafka.X"}
    assert penstock_environment(authorizer) == {"PENSTOCK_SECURITY__AUTHORIZER": "acl"}


def test_kafkas_tests_get_every_setting_that_they_ask_for() -> None:
    assert [name for name in PROPERTIES if not penstock_environment({name: "1"})] == []
    assert len(set(CLASSES)) == len(CLASSES)


PRINTED = """
[<MAIN>    /  0.1s] 2 test(s) running: 0001_multiobj 0045_subscribe_update
[0099_x    /  1.0s] ================= Test 0099_commit_metadata PASSED =================
[0007_x    /  1.0s] ================= Test 0007_autotopic PASSED =================
| 0001_multiobj                            |     PASSED |   2.001s |
| 0007_autotopic                           |     FAILED |   9.001s | no topic
| 0077_compaction                          |    SKIPPED |   0.000s | no script
| 0081_admin                               |    RUNNING |  99.000s |
"""


def test_the_table_of_librdkafka_has_the_last_word() -> None:
    assert librdkafka.read_results(PRINTED) == {
        "0001_multiobj": Result.PASSED,
        "0007_autotopic": Result.FAILED,
        "0077_compaction": Result.SKIPPED,
        "0081_admin": Result.FAILED,
        "0099_commit_metadata": Result.PASSED,
    }


TABLE = """
#define _TEST(NAME, FLAGS, ...) x
    _TEST(0001_multiobj, 0),
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0011_produce_batch,
          /* Produces a lot of messages */
          0),
    _TEST(0047_partial_buf_tmout, TEST_F_KNOWN_ISSUE),
    _TEST(0049_consume_conn_close, TEST_F_SOCKEM, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0055_producer_latency, TEST_F_KNOWN_ISSUE_WIN32),
    _TEST(0081_admin, 0, TEST_BRKVER(0, 10, 2, 0)),
    _TEST(0170_share_consumer_subscription, 0, TEST_BRKVER(4, 2, 0, 0)),
    _TEST(0173_share_consumer_commit_async_local, TEST_F_LOCAL),
    _TEST(8000_idle, TEST_F_MANUAL),
"""


def test_tests_of_librdkafka_that_need_no_broker_or_break_connections_are_left_out() -> None:
    assert librdkafka.tests_in(TABLE) == [
        "0001_multiobj",
        "0011_produce_batch",
        "0055_producer_latency",
        "0081_admin",
        "0170_share_consumer_subscription",
    ]


def test_topics_of_a_suite_have_a_replica_on_each_broker_up_to_three() -> None:
    assert [replication_factor(",".join(["a:1"] * count)) for count in (1, 2, 3, 5)] == [1, 2, 3, 3]
