"""`penstock cluster import`: from a broker alone to a cluster."""

import click

from penstock.cli.cluster.transfer_options import print_report, run_transfer, transfer_options
from penstock.cli.options import examples
from penstock.node.transfer.importing import import_directory


@click.command(
    name="import",
    short_help="Move the metadata of a broker alone into etcd.",
    epilog=examples(
        "penstock cluster import --data-dir penstock-data --etcd http://127.0.0.1:2379 --check",
        "penstock cluster import --data-dir penstock-data --etcd http://127.0.0.1:2379",
        "penstock cluster import --config broker1.toml",
    ),
)
@transfer_options
def import_(
    file: str | None,
    data_dir: str | None,
    etcd: tuple[str, ...],
    name: str | None,
    only_checks: bool,
    as_json: bool,
) -> None:
    """Move the metadata of a broker that ran alone into etcd: it is the first of a cluster then.

    The broker must be stopped. Its records stay in its data directory; topics, settings, users,
    access rules, quotas and offsets of groups are kept. Afterwards start it with cluster.etcd, then
    the other brokers with new data directories.

    After a crash the command can be repeated. `penstock cluster export` undoes it, as long as no
    other broker has replicas.
    """
    report = run_transfer(import_directory, file, data_dir, etcd, name, only_checks=only_checks)
    done = (
        f"broker {report.broker_id} can be imported below {report.root}; nothing was changed"
        if only_checks
        else f"imported below {report.root}: start broker {report.broker_id} with cluster.etcd now"
    )
    nothing_done = (
        f"imported before: the metadata of broker {report.broker_id} is in etcd, below "
        f"{report.root}"
    )
    print_report(report, done, nothing_done, as_json=as_json, only_checks=only_checks)
