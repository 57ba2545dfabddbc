"""Lines of keys: tables, arrays of tables, dotted and quoted names, values over several lines."""

import pytest

from penstock.core.settings.toml_lines import key_lines, line_of

TEXT = '''\
top = 1
[listener]
port = 9092  # a remark
"host" = "a"

[[topics]]
name = "orders"
settings = { "retention.ms" = 5 }
[[ topics ]]
name = "audit"
[topics.settings]
"cleanup.policy" = [
  "compact",  # not a = b
]
segment.bytes = 1_048_576
[node]
data_dir = """
id = 5
"""
id = 7
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("top", 1),
        ("listener.port", 3),
        ("listener.host", 4),
        ("topics[0]", 6),
        ("topics[0].name", 7),
        ("topics[0].settings", 8),
        ("topics[1].name", 10),
        ("topics[1].settings.cleanup.policy", 12),
        ("topics[1].settings.segment.bytes", 15),
        ("node.data_dir", 17),
        ("node.id", 20),
    ],
)
def test_each_key_has_its_line(key: str, line: int) -> None:
    assert key_lines(TEXT)[key] == line


def test_what_has_no_line_of_its_own_has_that_of_what_it_is_in() -> None:
    lines = key_lines(TEXT)
    assert line_of(lines, "topics[0].settings.retention.ms") == 8
    assert line_of(lines, "topics[1].partitions") == 9
    assert line_of(lines, "nowhere.at.all") is None


def test_a_string_may_hold_what_looks_like_toml() -> None:
    lines = key_lines("a = \"[b] # c\"\nd = '''\n[e]\n'''\nf = 1\n")
    assert lines == {"a": 1, "d": 2, "f": 5}
