"""`penstock config`: check a settings file before it is used, explain what a setting does.

Both read the file and the `PENSTOCK_*` environment exactly as `penstock serve` does, so what they
show is what a broker would run with. They start nothing and talk to nobody.
"""

import click

from penstock.cli import exits
from penstock.cli.options import examples, json_option
from penstock.cli.output import note, print_json, print_table
from penstock.cli.settings_file import load
from penstock.core.config import (
    DEFAULT_SOURCE,
    Loaded,
    SettingInfo,
    closest_keys,
    describe_settings,
)
from penstock.core.errors import ConfigError


@click.group(
    short_help="Check a settings file, explain a setting.",
    epilog=examples(
        "penstock config check penstock.toml",
        "penstock config explain listener.port",
    ),
)
def config() -> None:
    """Check a settings file, explain a setting."""


@config.command(
    short_help="Check a settings file as `penstock serve` would.",
    epilog=examples("penstock config check penstock.toml"),
)
@click.argument("file", type=click.Path(dir_okay=False, exists=True))
@json_option()
@click.pass_context
def check(context: click.Context, file: str, as_json: bool) -> None:
    """Check a settings FILE, with the environment on top, as `penstock serve` would.

    Shows what differs from the defaults. Exit code 1 when something is wrong.
    """
    try:
        loaded = load(file, {})
    except ConfigError as error:
        problems = str(error).splitlines()
        if as_json:
            print_json({"file": file, "valid": False, "problems": problems, "settings": []})
        else:
            for problem in problems:
                note(problem)
        context.exit(exits.FAILED)
    infos = describe_settings()
    rows = [_value(info, loaded) for info in infos if loaded.sources[info.key] != DEFAULT_SOURCE]
    if as_json:
        print_json({"file": file, "valid": True, "problems": [], "settings": rows})
        return
    if rows:
        print_table(["setting", "value", "source"], [_cells(row) for row in rows])
    click.echo(f"{file}: no problems, {len(rows)} of {len(infos)} settings given")


@config.command(
    short_help="What a setting means, its value and where that comes from.",
    epilog=examples(
        "penstock config explain",
        "penstock config explain flush",
        "penstock config explain listener.port --config penstock.toml",
    ),
)
@click.argument("key", required=False)
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, exists=True),
    help="Settings file to take values from.",
)
@json_option()
def explain(key: str | None, file: str | None, as_json: bool) -> None:
    """Explain the setting KEY, or list all settings or those of a section."""
    loaded = load(file, {})
    chosen = [
        info
        for info in describe_settings()
        if key is None or info.key == key or info.key.startswith(f"{key}.")
    ]
    if not chosen:
        remedy = " or ".join(closest_keys(key or "")) or "one of `penstock config explain`"
        raise click.BadParameter(f"{key} is not a setting. Did you mean {remedy}?")
    is_one = len(chosen) == 1 and chosen[0].key == key
    documents = [_explained(info, loaded) for info in chosen]
    if as_json:
        print_json(documents[0] if is_one else documents)
    elif is_one:
        _print_one(documents[0])
    else:
        rows = [_cells(_value(info, loaded)) for info in chosen]
        print_table(["setting", "value", "source"], rows)


def _value(info: SettingInfo, loaded: Loaded) -> dict[str, object]:
    return {"key": info.key, "value": loaded.value(info.key), "source": loaded.sources[info.key]}


def _explained(info: SettingInfo, loaded: Loaded) -> dict[str, object]:
    return {
        **_value(info, loaded),
        "default": info.default,
        "type": info.type_text.replace("`", ""),
        "unit": info.unit or None,
        "environment": info.environment_name,
        "kafka": info.kafka_name or None,
        "description": info.description,
    }


def _cells(row: dict[str, object]) -> list[object]:
    return [row["key"], _shown(row["value"]), row["source"]]


def _shown(value: object) -> object:
    """A value as a settings file writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "unset" if value is None else value


def _print_one(document: dict[str, object]) -> None:
    click.echo(f"{document['key']} = {_shown(document['value'])}")
    click.echo(f"  {document['description']}")
    unit = f", in {document['unit']}" if document["unit"] else ""
    click.echo(f"  source:       {document['source']}")
    click.echo(f"  default:      {_shown(document['default'])}")
    click.echo(f"  type:         {document['type']}{unit}")
    click.echo(f"  environment:  {document['environment']}")
    if document["kafka"]:
        click.echo(f"  Kafka's name: {document['kafka']}")
