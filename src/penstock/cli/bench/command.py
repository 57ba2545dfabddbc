"""`penstock bench`: measure one Kafka-compatible broker, or compare two of them in turns.

Clients run in their own processes. Figures, a histogram and warnings about doubtful results go to
standard output; `--json` and `--html` write files. Created topics are deleted, also after Ctrl-C.
`penstock.bench` measures; this module has only options and output.
"""

import json
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from penstock.bench.comparison import Comparison
from penstock.bench.measurement import Measurement, StorageFigures
from penstock.bench.workload import (
    ACKS,
    CONSUME,
    END_TO_END,
    GROUPS,
    LOOKUP,
    PRODUCE,
    Workload,
)
from penstock.cli.bench.bench_options import (
    acks_option,
    in_flight_option,
    json_option,
    length_options,
    rate_option,
    record_options,
    result_options,
    topic_options,
)
from penstock.cli.bench.text import print_comparison, print_measurement
from penstock.cli.bench.view import live_view
from penstock.cli.options import blamed_on, bootstrap_option, examples, timeout_option
from penstock.cli.output import note
from penstock.cli.text.settings_text import parse_settings
from penstock.client.transport.addresses import parse_addresses

_DEFAULTS = Workload()
_STORAGE_DEFAULTS = {
    "partitions": None,
    "topic": None,
    "topic_configs": (),
    "replication_factor": _DEFAULTS.replication_factor,
}


@click.group(
    short_help="Measure a broker, or compare two.",
    epilog=examples(
        "penstock bench produce",
        "penstock bench end-to-end --rate 5000 --batch 1 --html report.html",
        "penstock bench produce --against localhost:9192 --rounds 5",
    ),
)
def bench() -> None:
    """Measure any Kafka broker from processes of their own, or two in turns.

    The result also reports whether the load generator or the broker was the limit.
    """


@bench.command(
    short_help="Write records.",
    epilog=examples(
        "penstock bench produce --size 100 --batch 500 --clients 2",
        "penstock bench produce --rate 20000 --partitions 6 --keys zipf --compression zstd",
    ),
)
@length_options
@record_options
@acks_option
@rate_option
@in_flight_option
@topic_options
@result_options
def produce(**options: object) -> None:
    """Write records, and time each request until its answer."""
    _measure(PRODUCE, options)


@bench.command(
    short_help="Read records.",
    epilog=examples(
        "penstock bench consume --partitions 4 --clients 2",
        "penstock bench consume --topic orders --duration 5",
    ),
)
@length_options
@record_options
@topic_options
@result_options
def consume(**options: object) -> None:
    """Read records as fast as a broker gives them, and time each fetch.

    A topic is created and filled first; with --topic an existing one is read. Records are counted
    and not decoded.
    """
    _measure(CONSUME, options)


@bench.command(
    short_help="Find records by offset.",
    epilog=examples(
        "penstock bench lookup --partitions 4",
        "penstock bench lookup --topic orders --duration 5",
    ),
)
@length_options
@record_options
@topic_options
@result_options
def lookup(**options: object) -> None:
    """Fetch the batch of one random offset after another, and time each.

    A topic is created and filled first; with --topic an existing one is used.
    """
    _measure(LOOKUP, options)


@bench.command(
    short_help="Four figures of the log.",
    epilog=examples(
        "penstock bench storage",
        "penstock bench storage --size 100 --batch 500 --duration 5 --json -",
    ),
)
@length_options
@record_options
@json_option
@bootstrap_option
@timeout_option
def storage(**options: object) -> None:
    """Measure write, read active, read sealed and lookup, one after another.

    The active segment is the one that is written to; sealed segments are complete.
    """
    from penstock.bench.storage_parts import run_storage
    from penstock.cli.bench.text import print_storage
    from penstock.cli.client_settings import chosen_bootstrap, client_settings

    given: dict[str, Any] = _STORAGE_DEFAULTS | options
    workload = _workload(PRODUCE, given)
    _check_writable(given["json_path"])
    settings = client_settings()
    bootstrap = chosen_bootstrap(str(given["bootstrap"]), settings)
    with blamed_on("--bootstrap-server"):
        parse_addresses(bootstrap)
    with _terminated_as_interrupted(), live_view(workload) as watch:
        result = run_storage(workload, bootstrap, security=settings.security, watch=watch)
    if given["json_path"] != "-":
        print_storage(result)
    _write(result, given["json_path"], None)


@bench.command(
    name="end-to-end",
    short_help="Time records from producer to consumer.",
    epilog=examples(
        "penstock bench end-to-end --rate 1000 --batch 1 --duration 30",
        "penstock bench end-to-end --rate 50000 --clients 2 --partitions 2",
    ),
)
@length_options
@record_options
@acks_option
@rate_option
@in_flight_option
@topic_options
@result_options
def end_to_end(**options: object) -> None:
    """Write and read at the same time, and time each batch until a reader has it."""
    _measure(END_TO_END, options)


@bench.command(
    short_help="Join groups and commit offsets.",
    epilog=examples(
        "penstock bench groups --members 20 --partitions 60",
        "penstock bench groups --clients 4 --rate 2000",
    ),
)
@length_options
@click.option(
    "--members",
    type=int,
    default=_DEFAULTS.members,
    show_default=True,
    help="Members of each group; each client is a group.",
)
@rate_option
@topic_options
@result_options
def groups(**options: object) -> None:
    """Let groups form, commit offsets, and rebalance after a member left.

    Needs the consumer protocol of Kafka 4 (KIP-848).
    """
    _measure(GROUPS, options)


def _measure(kind: str, options: Mapping[str, object]) -> None:
    # Processes and pipes are imported only for a measurement, not for the help.
    from penstock.bench.runner import compare, run
    from penstock.cli.client_settings import chosen_bootstrap, client_settings, settings_of_file

    given: dict[str, Any] = dict(options)
    workload = _workload(kind, given)
    settings = client_settings()
    bootstrap, against = chosen_bootstrap(str(given["bootstrap"]), settings), given["against"]
    against_settings = settings_of_file(given["against_config"])
    if given["against_config"] is not None and against is None:
        raise click.UsageError("--against-config is for the broker that --against names: give it.")
    for option, text in (("--bootstrap-server", bootstrap), ("--against", against)):
        if text is not None:
            with blamed_on(option):
                parse_addresses(text)
    for path in (given["json_path"], given["html_path"]):
        _check_writable(path)
    result: Measurement | Comparison
    with _terminated_as_interrupted(), live_view(workload) as watch:
        if against is None:
            result = run(workload, bootstrap, security=settings.security, watch=watch)
        else:
            result = compare(
                workload,
                bootstrap,
                against,
                security=settings.security,
                second_security=against_settings.security,
                rounds=given["rounds"],
                watch=watch,
            )
    if given["json_path"] != "-":
        if isinstance(result, Comparison):
            print_comparison(result)
        else:
            print_measurement(result)
    _write(result, given["json_path"], given["html_path"])


def _workload(kind: str, given: Mapping[str, Any]) -> Workload:
    partitions = given["partitions"]
    if given["topic"] is not None and (partitions is not None or given["topic_configs"]):
        raise click.UsageError(
            "--partitions and --topic-config are for a created topic; the topic that --topic names "
            "stays as it is."
        )
    names = ("size_bytes", "batch_records", "compression", "keys", "key_count", "rate", "in_flight")
    others = {name: given[name] for name in names if name in given}
    if "acks" in given:
        others["acks"] = ACKS[given["acks"]]
    if "members" in given:
        others["members"] = given["members"]
    return Workload(
        kind=kind,
        clients=given["clients"],
        partitions=given.get("members", 1) if partitions is None else partitions,
        duration_seconds=given["duration_seconds"],
        count=given["count"],
        warmup_seconds=given["warmup_seconds"],
        topic=given["topic"],
        replication_factor=given["replication_factor"],
        topic_settings=parse_settings(given["topic_configs"], "--topic-config"),
        timeout_seconds=given["timeout_seconds"],
        **others,
    )


def _check_writable(path: str | None) -> None:
    """Check the output path first, so that a long run does not fail at a missing folder."""
    if path is not None and path != "-" and not Path(path).absolute().parent.is_dir():
        raise click.UsageError(
            f"{path} cannot be written: its folder does not exist. Make it first."
        )


def _write(
    result: Measurement | Comparison | StorageFigures,
    json_path: str | None,
    html_path: str | None,
) -> None:
    if json_path is not None:
        text = json.dumps(result.document(), indent=2, ensure_ascii=False) + "\n"
        if json_path == "-":
            sys.stdout.write(text)
        else:
            Path(json_path).write_text(text, encoding="utf-8")
            note(f"Everything is in {json_path}.")
    if html_path is not None and not isinstance(result, StorageFigures):
        from penstock.bench.html_page import page

        made_at = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        Path(html_path).write_text(page(result, made_at), encoding="utf-8")
        note(f"The report is in {html_path}.")


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C: clients end and topics are deleted."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
