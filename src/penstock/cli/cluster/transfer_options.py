"""The options and the output that `penstock cluster import` and `export` share."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol, TypeVar

import click

from penstock.cli.options import WrongUsageError, json_option, settings_file_option
from penstock.cli.output import note, print_json, print_table
from penstock.cli.settings_file import load
from penstock.cluster.stores.port import MetadataStore
from penstock.core.clock import SystemClock
from penstock.core.settings.tree import Settings
from penstock.node.security.cluster_store import open_cluster_store
from penstock.node.transfer.importing import TransferReport
from penstock.storage.disk.filesystem import DiskFileSystem, FileSystem

Command = TypeVar("Command", bound=Callable[..., Any])


class Transferring(Protocol):
    """`import_directory` or `export_cluster`."""

    def __call__(
        self,
        filesystem: FileSystem,
        path: str,
        store: MetadataStore,
        root: str,
        *,
        only_checks: bool,
    ) -> Awaitable[TransferReport]:
        """Move the metadata; return the report."""
        ...


def transfer_options(command: Command) -> Command:
    """Add the options that name the data directory and etcd."""
    for option in (
        json_option(),
        click.option("--check", "only_checks", is_flag=True, help="Only report; change nothing."),
        click.option(
            "--name", help="Name of the cluster in etcd (cluster.name). Default: default."
        ),
        click.option(
            "--etcd",
            multiple=True,
            metavar="ADDRESS",
            help="Address of an etcd member, such as http://etcd1:2379 (cluster.etcd); may be "
            "repeated.",
        ),
        click.option(
            "--data-dir",
            type=click.Path(file_okay=False),
            help="Data directory of the broker (node.data_dir).",
        ),
        settings_file_option,
    ):
        command = option(command)
    return command


def run_transfer(
    work: Transferring,
    file: str | None,
    data_dir: str | None,
    etcd: tuple[str, ...],
    name: str | None,
    *,
    only_checks: bool,
) -> TransferReport:
    """Run an import or an export with these options; return its report."""
    settings = _settings(file, data_dir, etcd, name)

    async def run() -> TransferReport:
        async with AsyncExitStack() as stack:
            store = await open_cluster_store(settings, SystemClock(), stack)
            return await work(
                DiskFileSystem(),
                settings.node.data_dir,
                store,
                settings.cluster.root,
                only_checks=only_checks,
            )

    return asyncio.run(run())


def _settings(
    file: str | None, data_dir: str | None, etcd: tuple[str, ...], name: str | None
) -> Settings:
    flags = {
        "node.data_dir": data_dir,
        "cluster.etcd": etcd or None,
        "cluster.name": name,
        # No broker starts here: the file may be that of a broker alone.
        "cluster.listen_port": 0,
    }
    settings = load(file, flags).settings
    if not settings.cluster.is_set:
        raise WrongUsageError(
            "There is no address of etcd.",
            hint="Name it with --etcd http://HOST:2379, or a settings file with --config.",
        )
    return settings


def print_report(
    report: TransferReport, done: str, nothing_done: str, *, as_json: bool, only_checks: bool
) -> None:
    """Print the outcome; `nothing_done` if an earlier run had done it."""
    for warning in report.warnings:
        note(f"warning: {warning}")
    if as_json:
        print_json(
            {
                "cluster_id": report.cluster_id,
                "broker": report.broker_id,
                "root": report.root,
                "checked_only": only_checks,
                "moved": report.counts,
                "warnings": list(report.warnings),
            }
        )
        return
    if not report.counts:
        click.echo(nothing_done)
        return
    print_table(["kind", "number"], [[kind, count] for kind, count in report.counts.items()])
    click.echo(done)
