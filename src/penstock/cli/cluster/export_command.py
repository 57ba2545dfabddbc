"""`penstock cluster export`: from a cluster back to a broker alone."""

import click

from penstock.cli.cluster.transfer_options import print_report, run_transfer, transfer_options
from penstock.cli.options import examples
from penstock.node.transfer.exporting import export_cluster


@click.command(
    short_help="Move the metadata of a cluster back to one broker.",
    epilog=examples(
        "penstock cluster export --data-dir penstock-data --etcd http://127.0.0.1:2379 --check",
        "penstock cluster export --data-dir penstock-data --etcd http://127.0.0.1:2379",
        "penstock cluster export --config broker1.toml",
    ),
)
@transfer_options
def export(
    file: str | None,
    data_dir: str | None,
    etcd: tuple[str, ...],
    name: str | None,
    only_checks: bool,
    as_json: bool,
) -> None:
    """Move the metadata of a cluster from etcd into the data directory of one broker.

    The broker runs alone afterwards, without cluster.etcd. All brokers must be stopped, and no
    other broker may have a replica. The keys of the cluster are deleted in etcd.

    After a crash the command can be repeated.
    """
    report = run_transfer(export_cluster, file, data_dir, etcd, name, only_checks=only_checks)
    done = (
        f"broker {report.broker_id} can run alone; nothing was changed"
        if only_checks
        else f"exported: start broker {report.broker_id} without cluster.etcd now"
    )
    nothing_done = f"broker {report.broker_id} is alone: its metadata is in its data directory"
    print_report(report, done, nothing_done, as_json=as_json, only_checks=only_checks)
