"""`penstock config`: check a settings file, show and explain settings, plan changes.

All commands read the file and the `PENSTOCK_*` environment exactly as `penstock serve` does, so
they show the settings that a broker would use. They change nothing. `plan` queries a broker, and so
does `explain` if an address is set.
"""

import click

from penstock.cli import exits
from penstock.cli.config.text import (
    explained,
    listener_document,
    print_listeners,
    print_one,
    print_remedy,
    print_topics,
    print_values,
    toml_lines,
    topic_document,
    value_document,
)
from penstock.cli.options import (
    bootstrap_option,
    command_config_option,
    examples,
    json_option,
    settings_file_option,
    timeout_option,
)
from penstock.cli.output import note, print_json
from penstock.cli.settings_file import load
from penstock.core.errors import ConfigError
from penstock.core.settings.config import DEFAULT_SOURCE, Loaded, describe_settings
from penstock.core.settings.setting_names import closest_names, find_keys

_FILE = click.Path(dir_okay=False, exists=True)


@click.group(
    short_help="Check a settings file, explain a setting, plan a change.",
    epilog=examples(
        "penstock config check penstock.toml",
        "penstock config explain listener.port",
        "penstock config plan penstock.toml",
    ),
)
def config() -> None:
    """Check a settings file, show and explain settings, plan a change."""


@config.command(
    short_help="Check a settings file as `penstock serve` would.",
    epilog=examples("penstock config check penstock.toml"),
)
@click.argument("file", type=_FILE)
@click.option(
    "--no-files",
    is_flag=True,
    help="Do not read the certificates, keys and other files that FILE names: it is for another "
    "machine.",
)
@json_option()
@click.pass_context
def check(context: click.Context, file: str, no_files: bool, as_json: bool) -> None:
    """Check a settings FILE, with the environment on top, as `penstock serve` would.

    Reports all errors at once, with lines, or shows the settings that differ from the defaults.
    Certificates, keys, users and access rules that it names are read and checked too; a relative
    path starts at the current directory, as for `penstock serve`. Exit code 1 on an error.
    """
    problems: list[str] = []
    try:
        loaded = load(file, {})
        if not no_files:
            problems = _problems_of_files(loaded)
    except ConfigError as error:
        problems = str(error).splitlines()
    if problems:
        if as_json:
            print_json({"file": file, "valid": False, "problems": problems, "settings": []})
        else:
            for problem in problems:
                note(problem)
        context.exit(exits.FAILED)
    rows, topics = _given(loaded), [topic_document(topic) for topic in loaded.topics]
    if as_json:
        document = {"file": file, "valid": True, "problems": [], "settings": rows}
        listeners = [listener_document(listener) for listener in loaded.settings.listeners]
        print_json(
            {**document, "topics": topics, "listeners": listeners, "notes": list(loaded.notes)}
        )
        return
    print_values(rows)
    print_listeners(listener_document(listener) for listener in loaded.settings.listeners)
    print_topics(topics)
    for line in loaded.notes:
        note(line)
    declared = f", {len(topics)} topic{'' if len(topics) == 1 else 's'} declared" if topics else ""
    given = f"{len(rows)} setting{'' if len(rows) == 1 else 's'} given"
    click.echo(f"{file}: no problems, {given}{declared}")


@config.command(
    short_help="Show the settings that a broker would run with.",
    epilog=examples(
        "penstock config show --config penstock.toml",
        "penstock config show --all",
        "penstock config show --all --toml > penstock.toml",
    ),
)
@settings_file_option
@click.option("--all", "everything", is_flag=True, help="Show settings with their default too.")
@click.option("--toml", "as_toml", is_flag=True, help="Print a settings file.")
@json_option()
def show(file: str | None, everything: bool, as_toml: bool, as_json: bool) -> None:
    """Show the settings and declared topics that a broker would run with, and their sources."""
    loaded = load(file, {})
    rows = _all(loaded) if everything else _given(loaded)
    topics = [topic_document(topic) for topic in loaded.topics]
    listeners = [listener_document(listener) for listener in loaded.settings.listeners]
    if as_json:
        document = {"settings": rows, "topics": topics, "listeners": listeners}
        print_json({**document, "notes": list(loaded.notes)})
    elif as_toml:
        click.echo(toml_lines(rows, topics, listeners))
    else:
        print_values(rows)
        print_listeners(listeners)
        print_topics(topics)
        if not (rows or topics or listeners):
            click.echo("Every setting has its default; --all lists them.")


@config.command(
    short_help="What a setting means, its value and where that comes from.",
    epilog=examples(
        "penstock config explain",
        "penstock config explain flush",
        "penstock config explain listener.port --config penstock.toml",
        "penstock config explain log.retention.ms --bootstrap-server localhost:9092",
    ),
)
@click.argument("key", required=False)
@settings_file_option
@click.option(
    "--bootstrap-server",
    "--bootstrap",
    "bootstrap",
    metavar="HOST:PORT",
    help="Ask this broker what is in force, changes over the wire included.",
)
@command_config_option
@timeout_option
@json_option()
def explain(
    key: str | None,
    file: str | None,
    bootstrap: str | None,
    timeout_seconds: float,
    as_json: bool,
) -> None:
    """Explain the setting KEY, or list all settings or those of a section.

    KEY is a name such as listener.port, its environment variable, or Kafka's name.
    """
    loaded = load(file, {})
    wanted = list(loaded.sources) if key is None else find_keys(key)
    if not wanted:
        from penstock.core.settings.kafka_names import kafka_remedy  # needed only here

        of_kafka = kafka_remedy(key or "")
        if of_kafka is not None:
            print_remedy(key or "", of_kafka, as_json=as_json)
            return
        remedy = " or ".join(closest_names(key or "")) or "one of `penstock config explain`"
        raise click.BadParameter(f"{key} is not a setting. Did you mean {remedy}?")
    documents = [explained(info, loaded) for info in describe_settings() if info.key in wanted]
    if bootstrap is not None:
        from penstock.cli.config.plan import settings_in_force  # needed only to query a broker

        in_force = settings_in_force(bootstrap, timeout_seconds)
        for document in documents:
            document["broker"] = in_force.get(str(document["kafka"]))
    is_one = len(documents) == 1
    if as_json:
        print_json(documents[0] if is_one else documents)
    elif is_one or bootstrap is not None:
        for document in documents:
            print_one(document)
    else:
        print_values(documents)


@config.command(
    short_help="Show the changes of a settings file to a running broker.",
    epilog=examples("penstock config plan penstock.toml"),
)
@click.argument("file", type=_FILE)
@bootstrap_option
@timeout_option
@json_option()
@click.pass_context
def plan(
    context: click.Context, file: str, bootstrap: str, timeout_seconds: float, as_json: bool
) -> None:
    """Show the changes that a running broker would apply if its settings file were FILE.

    Nothing is changed. Only settings that the broker reports over the wire are compared; other
    settings in FILE are listed by name. Settings of topics that the file no longer declares are
    reset by the broker that set them, and are not listed here. Exit code 1 when a change is
    impossible.
    """
    loaded = load(file, {})
    from penstock.cli.config.plan import make_plan

    steps, problems, not_compared = make_plan(loaded, bootstrap, timeout_seconds)
    if as_json:
        print_json(
            {"file": file, "steps": steps, "problems": problems, "not_compared": not_compared}
        )
    else:
        for step in steps:
            click.echo(step)
        for problem in problems:
            note(problem)
        if not_compared:
            note(f"Not compared, because brokers do not report them: {', '.join(not_compared)}.")
        if not steps and not problems:
            click.echo("Nothing to change.")
    if problems:
        context.exit(exits.FAILED)


def _problems_of_files(loaded: Loaded) -> list[str]:
    """Return why a broker would not start with the files of these settings."""
    from penstock.core.clock import SystemClock
    from penstock.node.start_check import start_problems  # a part of the broker

    found = start_problems(loaded.settings, SystemClock())
    return [" ".join(filter(None, (str(error), error.hint))) for error in found]


def _all(loaded: Loaded) -> list[dict[str, object]]:
    return [value_document(info, loaded) for info in describe_settings()]


def _given(loaded: Loaded) -> list[dict[str, object]]:
    return [row for row in _all(loaded) if row["source"] != DEFAULT_SOURCE]
