"""Differences between two trees of settings, and whether a running broker can apply them (pure).

A change is accepted whole or not at all: one setting that needs a restart refuses all others with
it. How changes are applied is NOT known here.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.core.settings.setting_names import is_live
from penstock.core.settings.tree import Settings, flat_values


class ChangedSetting(NamedTuple):
    """One setting that has another value."""

    key: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.before)} -> {_shown(self.after)}"


def changed_settings(before: Settings, after: Settings) -> tuple[ChangedSetting, ...]:
    """The changed settings, in the order of the tree."""
    old, new = flat_values(before), flat_values(after)
    return tuple(ChangedSetting(key, old[key], new[key]) for key in old if old[key] != new[key])


def restart_reasons(
    changed: Iterable[ChangedSetting], sources: Mapping[str, str]
) -> tuple[str, ...]:
    """Why a running broker cannot apply the changes; empty when it can."""
    return tuple(
        f"{one.key} = {_shown(one.after)} ({sources.get(one.key, 'default')}) needs a restart: "
        f"this broker runs with {_shown(one.before)}. Restart it, or take the change back."
        for one in changed
        if not is_live(one.key)
    )


def _shown(value: object) -> str:
    """A value as a settings file writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "unset" if value is None else repr(value) if isinstance(value, str) else str(value)
