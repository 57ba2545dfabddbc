"""The options of `penstock bench`, in the groups that its commands share.

It measures nothing and checks no values: `penstock.bench.workload` does.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from penstock.bench.workload import ACKS, KEY_DISTRIBUTIONS, Workload
from penstock.cli.completing import complete_topics
from penstock.cli.options import bootstrap_option, timeout_option
from penstock.records.compression import CODEC_NAMES

Command = TypeVar("Command", bound=Callable[..., Any])
_DEFAULTS = Workload()


def together(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that applies all of these, the first one outermost."""

    def decorate(command: Command) -> Command:
        for one in reversed(decorators):
            command = one(command)
        return command

    return decorate


length_options = together(
    click.option(
        "--duration",
        "duration_seconds",
        type=float,
        default=_DEFAULTS.duration_seconds,
        show_default=True,
        metavar="SECONDS",
        help="How long to measure, after the warm-up.",
    ),
    click.option(
        "--count", type=int, metavar="N", help="Measure N records (commits), not a duration."
    ),
    click.option(
        "--warmup",
        "warmup_seconds",
        type=float,
        default=_DEFAULTS.warmup_seconds,
        show_default=True,
        metavar="SECONDS",
        help="Load before the measured part; not counted.",
    ),
    click.option(
        "--clients",
        type=int,
        default=_DEFAULTS.clients,
        show_default=True,
        help="Client processes.",
    ),
)

topic_options = together(
    click.option(
        "--partitions",
        type=int,
        help="Partitions of the created topic; by default 1, for groups one for each member.",
    ),
    click.option(
        "--topic",
        shell_complete=complete_topics,
        help="Use this topic, which exists, and leave it there.",
    ),
    click.option(
        "--replication-factor",
        type=int,
        default=-1,
        help="Copies; without it the broker's default.",
    ),
    click.option(
        "--topic-config",
        "topic_configs",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the created topic; may be repeated.",
    ),
)

record_options = together(
    click.option(
        "--size",
        "size_bytes",
        type=int,
        default=_DEFAULTS.size_bytes,
        show_default=True,
        metavar="BYTES",
        help="Size of a record's value.",
    ),
    click.option(
        "--batch",
        "batch_records",
        type=int,
        default=_DEFAULTS.batch_records,
        show_default=True,
        metavar="RECORDS",
        help="Records in a batch; a request carries one batch.",
    ),
    click.option(
        "--compression",
        type=click.Choice(CODEC_NAMES),
        default=_DEFAULTS.compression,
        show_default=True,
        help="Codec of the batches.",
    ),
    click.option(
        "--keys",
        type=click.Choice(KEY_DISTRIBUTIONS),
        default=_DEFAULTS.keys,
        show_default=True,
        help="none: partitions take turns; uniform: all keys alike; zipf: few keys have most.",
    ),
    click.option(
        "--key-count",
        type=int,
        default=_DEFAULTS.key_count,
        show_default=True,
        help="How many different keys.",
    ),
)

acks_option = click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="What a write waits for.",
)

rate_option = click.option(
    "--rate",
    type=float,
    metavar="PER_SECOND",
    help="Send this number of records (commits) a second, all clients together, however slow the "
    "answers are; latency then counts from the time each was due. Without it, as fast as possible.",
)

in_flight_option = click.option(
    "--in-flight",
    type=int,
    default=_DEFAULTS.in_flight,
    show_default=True,
    help="Requests under way on a connection.",
)

json_option = click.option(
    "--json", "json_path", metavar="FILE", help="Write everything as JSON; - is standard output."
)

result_options = together(
    click.option(
        "--against",
        metavar="HOST:PORT",
        help="Measure this broker too, in turns, and print ratios.",
    ),
    click.option(
        "--against-config",
        type=click.Path(dir_okay=False, exists=True),
        metavar="FILE",
        help="With --against: the properties file of that broker, as --command-config.",
    ),
    click.option(
        "--rounds", type=int, default=3, show_default=True, help="With --against: turns of each."
    ),
    json_option,
    click.option("--html", "html_path", metavar="FILE", help="Write a report with charts."),
    bootstrap_option,
    timeout_option,
)
