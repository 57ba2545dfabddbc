"""`[[pipes]]` of a settings file: valid pipes, and the messages of invalid ones."""

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import BrokerConfig, load_settings
from penstock.core.settings.pipe_declarations import is_match, is_mirrored
from penstock.core.settings.settings_changes import changed_settings, restart_reasons

GOOD = """
[[pipes]]
name = "hq"
parent = "hq:9092,hq2:9092"
topics = ["price", "promo.*"]
groups = ["till-*"]
on_gap = "skip"
priority = "low"
"""


def test_a_pipe_is_read() -> None:
    (pipe,) = load_settings(GOOD, {}, {}).settings.pipes
    assert (pipe.name, pipe.topics, pipe.groups) == ("hq", ("price", "promo.*"), ("till-*",))
    assert (pipe.on_gap, pipe.priority, pipe.direction) == ("skip", "low", "down")
    assert (pipe.poll_interval_ms, pipe.bytes_per_second_max) == (1_000, 0)


def test_an_up_pipe_has_a_site_of_its_own_or_that_of_the_registry() -> None:
    up = f'{GOOD}\ndirection = "up"'
    (pipe,) = load_settings(f'{up}\nsite = "store-1"', {}, {}).settings.pipes
    assert (pipe.direction, pipe.site, pipe.on_full) == ("up", "store-1", "refuse")
    assert load_settings(f'{up}\n[registry]\nnode_id = "store-2"', {}, {}).settings.pipes
    assert not is_mirrored("price", [pipe])


@pytest.mark.parametrize(
    ("topics", "parent", "is_refused"),
    [
        ('["price"]', "hq2:9092", True),
        ('["pr*ce"]', "hq:9092", True),
        ('["*.new"]', "hq:9092", True),
        ('["promo"]', "hq:9092", False),
        ('["q*"]', "hq:9092", False),
        ('["price"]', "other:9092", False),
    ],
)
def test_two_up_pipes_do_not_send_one_topic_to_one_parent(
    topics: str, parent: str, is_refused: bool
) -> None:
    up = f'{GOOD}\ndirection = "up"\nsite = "store-1"\n'
    other = up.replace('"hq"', '"two"').replace('["price", "promo.*"]', topics)
    text = up + other.replace("hq:9092,hq2:9092", parent)
    if not is_refused:
        assert len(load_settings(text, {}, {}).settings.pipes) == 2
        return
    with pytest.raises(ConfigError, match="each record would arrive twice"):
        load_settings(text, {}, {})


def test_pipes_are_kept_by_an_embedded_broker() -> None:
    loaded = load_settings(GOOD, {}, {}).settings
    assert BrokerConfig(port=0, settings=loaded).pipes == loaded.pipes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[pipes]]\nname = "hq"\ntopics = ["a"]', "the pipe has no parent"),
        ('[[pipes]]\nname = "hq"\nparent = "x:1"\ntopics = []', "at least 1 item"),
        ('[[pipes]]\nname = "h q"\nparent = "x:1"\ntopics = ["a"]', "name = 'h q'"),
        ('[[pipes]]\nname = "hq"\nparent = "x:1"\ntopics = ["a b"]', "topics = 'a b'"),
        (f"{GOOD}\npolls = 3", "'polls' is not a setting of a pipe"),
        (f'{GOOD}\ndirection = "sideways"', "direction = 'sideways'"),
        (f'{GOOD}\ndirection = "up"', "has no site. Set site to a name"),
        (f'{GOOD}\ndirection = "up"\nsite = "a b"', "site = 'a b'"),
        (
            GOOD.replace("skip", "refresh") + 'direction = "up"\nsite = "s"\nrefresh_from = "/x"',
            "Set on_gap to stop or skip",
        ),
        (f'{GOOD}\non_full = "x"', "on_full = 'x'"),
        (f'{GOOD}\ntransport = "http"', "is not a URL"),
        (
            GOOD.replace("hq:9092,hq2:9092", "http://hq") + '\ntransport = "http"',
            "copies topics down and no groups",
        ),
        (GOOD + GOOD, "the pipe 'hq' is declared twice"),
        (GOOD.replace("skip", "refresh"), 'on_gap = "refresh" needs refresh_from'),
        ("pipes = [1]", "a pipe is a table"),
        ("\n".join(GOOD.replace("hq", f"p{one}") for one in range(33)), "33 pipes"),
    ],
)
def test_an_invalid_pipe_is_reported(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(text, {}, {}, "penstock.toml")
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("price", ["price"], ["prices", "pric"]),
        ("promo.*", ["promo.", "promo.x"], ["promo", "xpromo."]),
        ("a*b*c", ["abc", "axbyc", "abbc"], ["ac", "abcd", "acb"]),
        ("*", ["", "x"], []),
        ("ab*ba", ["abba", "abxba"], ["aba"]),
        ("a[b]*", ["a[b]c"], ["ab"]),
    ],
)
def test_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    assert [one for one in matching + others if is_match(one, pattern)] == matching


def test_pipes_change_live() -> None:
    before = load_settings("", {}, {})
    after = load_settings(GOOD, {}, {})
    changed = changed_settings(before.settings, after.settings)
    assert [str(one) for one in changed] == ["pipes: 'none' -> 'hq'"]
    assert restart_reasons(changed, after.sources) == ()
    other = load_settings(GOOD.replace("skip", "stop"), {}, {})
    assert [str(one) for one in changed_settings(after.settings, other.settings)] == [
        "pipes: 'hq' -> 'hq, changed'"
    ]
