"""`[[topics]]`: valid entries become declarations, errors are reported with their line."""

import pytest

from penstock.core.errors import ConfigError
from penstock.core.limits import DECLARED_TOPICS_MAX
from penstock.core.settings.config import load_settings
from penstock.core.settings.topic_declarations import TopicDeclaration


def declared(text: str) -> tuple[TopicDeclaration, ...]:
    return load_settings(text, {}, {}, "p.toml").topics


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        declared(text)
    return str(raised.value).splitlines()


def test_a_declaration_with_everything() -> None:
    text = """
[[topics]]
name = "orders"
partitions = 3
routing = "queue"
buffer_size = 1_000
max_message_size = 65_536
[topics.settings]
retention.ms = 5_000
"cleanup.policy" = ["compact", "delete"]
preallocate = false
"""
    settings = {
        "retention.ms": "5000",
        "cleanup.policy": "compact,delete",
        "preallocate": "false",
        "penstock.routing": "queue",
        "penstock.buffer.size": "1000",
        "max.message.bytes": "65536",
    }
    assert declared(text) == (TopicDeclaration("orders", 3, settings, "p.toml line 2"),)


def test_a_name_is_enough() -> None:
    (one,) = declared('[[topics]]\nname = "a"\n')
    assert (one.partitions, one.settings) == (None, {})


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[[topics]]\npartitions = 1\n", 1, "needs a name"),
        ("[[topics]]\nname = 7\n", 2, "needs a name"),
        ('[[topics]]\nname = "a"\npartitions = 0\n', 3, "whole number from 1"),
        ('[[topics]]\nname = "a"\npartitions = true\n', 3, "whole number from 1"),
        ('[[topics]]\nname = "a"\npartitions = "3"\n', 3, "whole number from 1"),
        ('[[topics]]\nname = "a"\nrouting = "ring"\n', 3, 'Use "fanout" or "queue"'),
        ('[[topics]]\nname = "a"\nrouting = ["queue"]\n', 3, 'Use "fanout" or "queue"'),
        ('[[topics]]\nname = "a"\nbuffer_size = 0\n', 3, "whole number from 1 to 1000000"),
        ('[[topics]]\nname = "a"\nbuffer_size = 1_000_001\n', 3, "whole number from 1"),
        ('[[topics]]\nname = "a"\nbuffer_size = true\n', 3, "whole number from 1"),
        ('[[topics]]\nname = "a"\nmax_message_size = "1MB"\n', 3, "whole number from 1"),
        (
            '[[topics]]\nname = "a"\nmax_message_size = 9\nsettings = {"max.message.bytes" = 9}\n',
            3,
            "and the setting max.message.bytes are the same",
        ),
        ('[[topics]]\nname = "a"\npartition = 2\n', 3, "Did you mean partitions?"),
        ('[[topics]]\nname = "a"\nzebra = 2\n', 3, "There are name, partitions"),
        ('[[topics]]\nname = "a"\nsettings = 2\n', 3, "settings are a table"),
        ('[[topics]]\nname = "a"\nsettings = { x = [1] }\n', 3, "x = [1] is not a text"),
        ('[[topics]]\nname = "a"\n[[topics]]\nname = "a"\n', 4, "declared twice, first in p.toml"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, words: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(f"p.toml line {line}: ")
    assert words in problem


def test_a_list_of_something_else() -> None:
    (problem,) = problems("topics = [1]\n")
    assert "declared as a table, not as 1" in problem


def test_all_problems_of_all_topics_come_together() -> None:
    text = '[[topics]]\npartitions = 0\n[listener]\nport = "x"\n[[topics]]\nroutin = 1\n'
    found = problems(text)
    assert [one.partition(":")[0] for one in found[:4]] == [
        "p.toml line 2",
        "p.toml line 1",
        "p.toml line 6",
        "p.toml line 5",
    ]
    assert found[4].startswith("listener.port = 'x' (p.toml line 4)")


def test_there_is_a_limit() -> None:
    text = "".join(f'[[topics]]\nname = "t{i}"\n' for i in range(DECLARED_TOPICS_MAX + 1))
    (problem,) = problems(text)
    assert f"more than {DECLARED_TOPICS_MAX}" in problem


def test_who_knows_more_rules_is_asked() -> None:
    with pytest.raises(ConfigError, match=r"p.toml line 1: no a"):
        load_settings('[[topics]]\nname = "a"', {}, {}, "p.toml", check_topic=lambda _: ["no a"])


# --- The old name of the table of defaults ---


def test_the_old_table_of_defaults_is_understood_and_told() -> None:
    loaded = load_settings("[topics]\nretention_ms = 5\n", {}, {}, "p.toml")
    assert loaded.settings.topic_defaults.retention_ms == 5
    assert loaded.sources["topic_defaults.retention_ms"] == "p.toml line 2"
    (note,) = loaded.notes
    assert note == (
        "topics.retention_ms (p.toml line 2) is an old name: call it topic_defaults.retention_ms."
    )


def test_the_old_variable_is_understood_and_the_new_one_wins() -> None:
    old = {"PENSTOCK_TOPICS__RETENTION_MS": "5"}
    loaded = load_settings(None, old, {})
    assert loaded.settings.topic_defaults.retention_ms == 5
    assert "PENSTOCK_TOPIC_DEFAULTS__RETENTION_MS" in loaded.notes[0]
    both = {**old, "PENSTOCK_TOPIC_DEFAULTS__RETENTION_MS": "6"}
    assert load_settings(None, both, {}).settings.topic_defaults.retention_ms == 6


def test_both_names_of_a_table_contradict_each_other() -> None:
    (problem,) = problems("[topics]\nretention_ms = 5\n[topic_defaults]\nretention_ms = 6\n")
    assert "given twice, in p.toml line 2 and in p.toml line 4" in problem


def test_the_old_table_and_declared_topics_cannot_be_in_one_file() -> None:
    (problem,) = problems('[topics]\nretention_ms = 5\n[[topics]]\nname = "a"\n')
    assert "Rename the first to [topic_defaults]" in problem
