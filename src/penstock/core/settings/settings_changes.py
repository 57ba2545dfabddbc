"""Differences between two trees of settings, and whether a running broker can apply them (pure).

A change is accepted or rejected as a whole: one setting that needs a restart rejects all others. It
does NOT know how changes are applied.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.core.settings.listener_declarations import SECTION as LISTENERS
from penstock.core.settings.pipe_declarations import SECTION as PIPES
from penstock.core.settings.setting_names import is_live
from penstock.core.settings.tree import Settings, flat_values


class ChangedSetting(NamedTuple):
    """One setting with a new value."""

    key: str
    before: object
    after: object

    def __str__(self) -> str:
        return f"{self.key}: {_shown(self.before)} -> {_shown(self.after)}"


def changed_settings(before: Settings, after: Settings) -> tuple[ChangedSetting, ...]:
    """Return the changed settings, in the order of the tree."""
    old, new = flat_values(before), flat_values(after)
    old[LISTENERS], new[LISTENERS] = _names(before), _names(after)
    if before.listeners != after.listeners and old[LISTENERS] == new[LISTENERS]:
        new[LISTENERS] = f"{new[LISTENERS]}, changed"
    old[PIPES], new[PIPES] = _pipes(before), _pipes(after)
    if before.pipes != after.pipes and old[PIPES] == new[PIPES]:
        new[PIPES] = f"{new[PIPES]}, changed"
    return tuple(ChangedSetting(key, old[key], new[key]) for key in old if old[key] != new[key])


def restart_reasons(
    changed: Iterable[ChangedSetting], sources: Mapping[str, str]
) -> tuple[str, ...]:
    """Return why a running broker cannot apply the changes; empty if it can."""
    return tuple(
        _restart_reason(one, sources)
        for one in changed
        if one.key == LISTENERS or (one.key != PIPES and not is_live(one.key))
    )


def _restart_reason(one: ChangedSetting, sources: Mapping[str, str]) -> str:
    if one.key == LISTENERS:
        return (
            f"[[{LISTENERS}]] were {one.before} and are {one.after}, which needs a restart. "
            "Restart the broker, or take the change back."
        )
    return (
        f"{one.key} = {_shown(one.after)} ({sources.get(one.key, 'default')}) needs a restart: "
        f"this broker runs with {_shown(one.before)}. Restart it, or take the change back."
    )


def _names(settings: Settings) -> str:
    return ", ".join(listener.name for listener in settings.listeners) or "none"


def _pipes(settings: Settings) -> str:
    return ", ".join(pipe.name for pipe in settings.pipes) or "none"


def _shown(value: object) -> str:
    """Return a value in the form of a settings file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return str(list(value))
    return "unset" if value is None else repr(value) if isinstance(value, str) else str(value)
