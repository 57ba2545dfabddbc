"""The differences between two trees, and those that need a restart."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.settings.config import load_settings
from penstock.core.settings.setting_names import is_live
from penstock.core.settings.settings_changes import changed_settings, restart_reasons
from penstock.core.settings.tree import FIELDS, Settings, flat_values, settings_of

OTHER = {
    "node.id": 7,
    "node.log_level": "debug",
    "listener.port": 1,
    "listener.advertised_host": "a",
    "listener.connections_max": 5,
    "flush.mode": "os",
    "topic_defaults.auto_create": False,
    "groups.offsets_partitions": 3,
    "transactions.timeout_ms_max": 9,
    "disk.free_percent_min": 1.5,
}


def test_what_differs_is_told_with_both_values() -> None:
    after = load_settings("[listener]\nport = 1\nadvertised_host = 'a'", {}, {}).settings
    changed = changed_settings(Settings(), after)
    assert [str(one) for one in changed] == [
        "listener.port: 9092 -> 1",
        "listener.advertised_host: unset -> 'a'",
    ]


def test_the_reason_names_setting_source_and_both_values() -> None:
    loaded = load_settings("[listener]\nport = 1\nconnections_max = 5", {}, {}, "p.toml")
    changed = changed_settings(Settings(), loaded.settings)
    (reason,) = restart_reasons(changed, loaded.sources)
    assert reason == (
        "listener.port = 1 (p.toml line 2) needs a restart: this broker runs with 9092. "
        "Restart it, or take the change back."
    )


@given(st.sets(st.sampled_from(sorted(OTHER))))
def test_one_reason_for_each_that_is_not_live_and_none_without(keys: set[str]) -> None:
    after = settings_of({**flat_values(Settings()), **{key: OTHER[key] for key in keys}})
    changed = changed_settings(Settings(), after)
    assert {one.key for one in changed} == keys
    reasons = restart_reasons(changed, {})
    assert [reason.split(" = ")[0] for reason in reasons] == [
        key for key in FIELDS if key in keys and not is_live(key)
    ]
