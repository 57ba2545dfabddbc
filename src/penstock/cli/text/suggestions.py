"""Hints for unknown names: the nearest existing name, or the command that lists all names.

After a failure the names are fetched from the command's cluster. If the fetch fails too, the hint
is the general one: a second failure must not hide the first.
"""

import difflib
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from penstock.client.cluster import Cluster
from penstock.core.errors import (
    BrokerAnswerError,
    PenstockError,
    UnknownTopicOrPartitionError,
)

LIKENESS_MIN: Final = 0.7
"""difflib's ratio: two swapped letters of six are near; half of a name is another name."""
_UNKNOWN_SETTING: Final = re.compile(r"Unknown (topic|group) config name: (\S+)")
"""The error message of Kafka and Penstock."""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the most similar name, ignoring case; None if no name is near."""
    by_lower = {one.lower(): one for one in sorted(names) if one != name}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=LIKENESS_MIN)
    return by_lower[close[0]] if close else None


def nearest_topic(cluster: Cluster, name: str) -> str | None:
    """Return the most similar topic; internal topics only for internal names."""
    with suppress(PenstockError):
        shows_internal = name.startswith("_")
        topics = cluster.all_topics()
        return nearest(
            name, [one.name or "" for one in topics if shows_internal or not one.is_internal]
        )
    return None


def hint_for(error: PenstockError, cluster: Cluster) -> str:
    """Return the hint for an unknown name; empty for any other error."""
    from penstock.client.groups.groups import Groups, UnknownGroupError
    from penstock.client.transactions.transactions import Transactions, UnknownTransactionError

    if isinstance(error, UnknownTopicOrPartitionError) and error.topic:
        close = nearest_topic(cluster, error.topic)
        return _hint(close, "`penstock topic list` shows the topics.") if close else ""
    if isinstance(error, UnknownGroupError):
        found: list[str] = []
        with suppress(PenstockError):
            found = [one.group_id for one in Groups(cluster).list_all()]
        return _hint(nearest(error.group_id, found), "`penstock group list` shows the groups.")
    if isinstance(error, UnknownTransactionError) and error.transactional_id:
        ids: list[str] = []
        with suppress(PenstockError):
            ids = [one.transactional_id for one in Transactions(cluster).list_all()]
        return _hint(nearest(error.transactional_id, ids), "`penstock txn list` shows the ids.")
    if isinstance(error, BrokerAnswerError):
        return _hint_for_setting(str(error))
    return ""


def _hint(close: str | None, everything: str) -> str:
    return everything if close is None else f"Did you mean '{close}'? {everything}"


def _hint_for_setting(text: str) -> str:
    unknown = _UNKNOWN_SETTING.search(text)
    if unknown is None:
        return ""
    from penstock.cluster.configs.group_configs import GROUP_CONFIGS
    from penstock.cluster.configs.topic_configs import TOPIC_CONFIGS

    kind, name = unknown.groups()
    known = TOPIC_CONFIGS if kind == "topic" else GROUP_CONFIGS
    everything = f"`penstock {kind} describe NAME --json` shows every setting of a {kind}."
    return _hint(nearest(name, known), everything)
