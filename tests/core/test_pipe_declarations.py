"""`[[pipes]]` of a settings file: valid pipes, and the messages of invalid ones."""

import pytest

from penstock.core.errors import ConfigError
from penstock.core.settings.config import BrokerConfig, load_settings
from penstock.core.settings.pipe_declarations import is_match
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
        (f'{GOOD}\ndirection = "up"', "direction = 'up'"),
        (GOOD + GOOD, "the pipe 'hq' is declared twice"),
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
