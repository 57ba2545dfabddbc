"""`penstock cluster features`: the levels of features, shown and raised.

It works through Kafka's protocol, so it needs no access to etcd.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from penstock.cli.brokers import open_cluster
from penstock.cli.options import (
    WrongUsageError,
    bootstrap_option,
    examples,
    json_option,
    timeout_option,
)
from penstock.cli.output import print_json, print_table
from penstock.cli.text.settings_text import parse_settings
from penstock.client.cluster import Cluster
from penstock.client.feature_calls import (
    BrokerFeatures,
    describe_features,
    raise_feature_levels,
)


class FeatureRow(NamedTuple):
    """One feature of a cluster."""

    name: str
    level: int
    """The level in use, 0 for none."""
    ranges: Mapping[int, tuple[int, int]]
    """The supported levels by broker id; a broker without the feature is absent."""
    common: tuple[int, int] | None
    """The levels that all brokers support; None for none."""


@click.command(
    short_help="Show and raise the levels of features.",
    epilog=examples(
        "penstock cluster features",
        "penstock cluster features --raise penstock.cluster=2",
        "penstock cluster features --raise-all",
    ),
)
@click.option(
    "--raise",
    "wanted",
    multiple=True,
    metavar="NAME=LEVEL",
    help="Raise a feature to this level; may be repeated.",
)
@click.option(
    "--raise-all", is_flag=True, help="Raise each feature to the highest level of all brokers."
)
@click.option("--check", "only_checks", is_flag=True, help="Only check whether it is possible.")
@bootstrap_option
@timeout_option
@json_option()
def features(
    wanted: tuple[str, ...],
    raise_all: bool,
    only_checks: bool,
    bootstrap: str,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Show the features of the cluster: the level in use, and the levels of each broker.

    After a rolling upgrade the cluster still uses the earlier levels, so that a broker of the
    earlier version can return. Raise them when all brokers are upgraded. A level is never lowered.
    """
    if wanted and raise_all:
        raise click.UsageError("Use --raise or --raise-all, not both.")
    levels = _levels(wanted)
    with open_cluster(bootstrap, timeout_seconds) as cluster:
        rows = _rows(_each(cluster))
        if raise_all:
            levels = {
                one.name: one.common[1] for one in rows if one.common and one.common[1] > one.level
            }
        if levels:
            call = raise_feature_levels(levels, cluster.timeout_ms, validate_only=only_checks)
            cluster.repeat(lambda: cluster.anywhere(call), repeatable=True)
            rows = _rows(_each(cluster))
    _print(rows, levels, as_json=as_json, only_checks=only_checks)


def _levels(wanted: Sequence[str]) -> dict[str, int]:
    found = {}
    for name, text in parse_settings(wanted, "--raise").items():
        if not text.isdecimal():
            raise WrongUsageError(
                f"--raise: {text!r} is not a level.", hint=f"Write a number: --raise {name}=2"
            )
        found[name] = int(text)
    return found


def _each(cluster: Cluster) -> dict[int, BrokerFeatures]:
    """Return the features of each broker by its id."""

    def attempt() -> dict[int, BrokerFeatures]:
        call = describe_features()
        return {one: cluster.at(address, call) for one, address in cluster.brokers().items()}

    return cluster.repeat(attempt, repeatable=True)


def _rows(brokers: Mapping[int, BrokerFeatures]) -> list[FeatureRow]:
    names = {name for one in brokers.values() for name in (*one.supported, *one.used)}
    rows = []
    for name in sorted(names):
        ranges = {
            broker_id: one.supported[name]
            for broker_id, one in sorted(brokers.items())
            if name in one.supported
        }
        level = max(one.used.get(name, 0) for one in brokers.values())
        common = None
        if len(ranges) == len(brokers):
            lowest, highest = (
                max(low for low, _ in ranges.values()),
                min(high for _, high in ranges.values()),
            )
            common = (lowest, highest) if lowest <= highest else None
        rows.append(FeatureRow(name, level, ranges, common))
    return rows


def _print(
    rows: Sequence[FeatureRow], raised: Mapping[str, int], *, as_json: bool, only_checks: bool
) -> None:
    if as_json:
        print_json(
            [
                {
                    "feature": one.name,
                    "level": one.level,
                    "supported_by_all": None if one.common is None else list(one.common),
                    "brokers": {str(broker): list(found) for broker, found in one.ranges.items()},
                }
                for one in rows
            ]
        )
        return
    print_table(
        ["feature", "level", "all support", "brokers"],
        [
            [one.name, one.level or None, _range_text(one.common), _brokers_text(one)]
            for one in rows
        ],
    )
    for name, level in raised.items():
        click.echo(
            f"{name} can be raised to level {level}"
            if only_checks
            else f"{name} is at level {level}"
        )


def _range_text(found: tuple[int, int] | None) -> str | None:
    if found is None:
        return None
    lowest, highest = found
    return str(lowest) if lowest == highest else f"{lowest}-{highest}"


def _brokers_text(row: FeatureRow) -> str:
    return ", ".join(f"{broker}: {_range_text(found)}" for broker, found in row.ranges.items())
