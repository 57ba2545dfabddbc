"""`[cluster]`: several brokers with one metadata store in etcd, and replication between them.

Without `cluster.etcd` a broker is alone: its metadata is in its data directory, and the other keys
have no effect. The password of etcd is never a setting: a setting names the file that has it.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from penstock.core import limits
from penstock.core.settings.settings_section import Section

BROKERS_MAX: Final = 100
"""Brokers of one cluster: one transaction compares the registration of each of them."""


class ClusterSettings(Section):
    """Several brokers that share their metadata in etcd; without `etcd`, one broker alone."""

    etcd: Annotated[
        tuple[str, ...],
        Field(
            max_length=16,
            description="Addresses of all etcd members, such as `https://etcd1.example:2379`. "
            "Empty: this broker is alone, with its metadata in the data directory.",
        ),
    ] = ()
    name: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z0-9._\-]{1,64}$",
            description="Name of the cluster in etcd: its keys begin with `/penstock/<name>/`. "
            "All brokers of one cluster have the same; clusters that share an etcd differ.",
        ),
    ] = "default"
    etcd_user: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=255,
            description="User of etcd; unset: no password, or the common name of the client "
            "certificate.",
        ),
    ] = None
    etcd_password_file: Annotated[
        str | None, Field(min_length=1, description="File with the password of `etcd_user`.")
    ] = None
    etcd_ca_file: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Certificate authorities of etcd in PEM, for `https://` addresses; unset: "
            "the ones that gRPC trusts.",
        ),
    ] = None
    etcd_certificate_file: Annotated[
        str | None,
        Field(min_length=1, description="Client certificate for etcd, in PEM."),
    ] = None
    etcd_key_file: Annotated[
        str | None,
        Field(min_length=1, description="Private key of the client certificate, in PEM."),
    ] = None
    listen_host: Annotated[
        str,
        Field(
            min_length=1,
            description="Address to listen on for other brokers. `0.0.0.0` is each address, and "
            "then `advertised_host` is needed.",
        ),
    ] = "127.0.0.1"
    listen_port: Annotated[
        int | None,
        Field(
            ge=0,
            le=65_535,
            description="Port to listen on for other brokers; required with `etcd`. 0 selects a "
            "free one.",
        ),
    ] = None
    advertised_host: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Name or address that other brokers connect to; unset: `listen_host`.",
        ),
    ] = None
    advertised_port: Annotated[
        int | None,
        Field(
            ge=1,
            le=65_535,
            description="Port that other brokers connect to; unset: the port of the listener.",
        ),
    ] = None
    tls_certificate: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Certificate of this broker for other brokers, in PEM; unset: no TLS "
            "between brokers. It needs `tls_key` and `tls_ca`.",
        ),
    ] = None
    tls_key: Annotated[
        str | None, Field(min_length=1, description="Private key of `tls_certificate`, in PEM.")
    ] = None
    tls_key_password_file: Annotated[
        str | None,
        Field(min_length=1, description="File with the password of an encrypted `tls_key`."),
    ] = None
    tls_ca: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Certificate authorities of all brokers, in PEM: a connection between "
            "brokers is verified by both sides.",
        ),
    ] = None
    session_seconds: Annotated[
        float,
        Field(
            ge=3,
            le=60,
            allow_inf_nan=False,
            description="A broker that is silent for this long counts as stopped, and others lead "
            "its partitions. etcd has whole seconds: it is rounded up.",
            json_schema_extra={"unit": "seconds", "kafka": "broker.session.timeout.ms"},
        ),
    ] = limits.BROKER_SESSION_SECONDS
    replica_lag_seconds_max: Annotated[
        float,
        Field(
            ge=1,
            le=3_600,
            allow_inf_nan=False,
            description="A follower that has not reached the end of the leader's log for this long "
            "leaves the in-sync replicas.",
            json_schema_extra={"unit": "seconds", "kafka": "replica.lag.time.max.ms"},
        ),
    ] = 10.0
    replica_selector_class: Annotated[
        Literal["org.apache.kafka.common.replica.RackAwareReplicaSelector"] | None,
        Field(
            description="With `org.apache.kafka.common.replica.RackAwareReplicaSelector`, a leader "
            "sends consumers that name a rack (`client.rack`) to an in-sync replica with that "
            "`node.rack`. Unset: consumers read from leaders. All brokers should have the same.",
            json_schema_extra={"kafka": "replica.selector.class"},
        ),
    ] = None
    replication_factor_default: Annotated[
        int,
        Field(
            ge=1,
            le=BROKERS_MAX,
            description="Replicas of a partition of a topic whose creator gave no number.",
            json_schema_extra={"unit": "replicas", "kafka": "default.replication.factor"},
        ),
    ] = 1
    internal_replication_factor: Annotated[
        int,
        Field(
            ge=1,
            le=3,
            description="Replicas of `__consumer_offsets`, `__transaction_state` and "
            "`__share_group_state`; with fewer brokers, one on each broker.",
            json_schema_extra={"unit": "replicas"},
        ),
    ] = 3
    min_insync_replicas_default: Annotated[
        int,
        Field(
            ge=1,
            le=2**31 - 1,
            description="In-sync replicas, the leader included, that a produce with acks=all "
            "needs, for topics that do not set it. All brokers should have the same.",
            json_schema_extra={"unit": "replicas", "kafka": "min.insync.replicas"},
        ),
    ] = 1
    unclean_leader_election: Annotated[
        bool,
        Field(
            description="Whether a replica that is not in sync may lead when no other can, losing "
            "records, for topics that do not set it. All brokers should have the same.",
            json_schema_extra={"kafka": "unclean.leader.election.enable"},
        ),
    ] = False
    leader_rebalance: Annotated[
        bool,
        Field(
            description="Whether the first replica of a partition leads again by itself, after it "
            "has been in sync for a minute.",
            json_schema_extra={"kafka": "auto.leader.rebalance.enable"},
        ),
    ] = True
    leader_rebalance_seconds: Annotated[
        int,
        Field(
            ge=1,
            le=86_400,
            description="Time between two checks for partitions that the first replica can lead.",
            json_schema_extra={
                "unit": "seconds",
                "kafka": "leader.imbalance.check.interval.seconds",
            },
        ),
    ] = 300

    @property
    def is_set(self) -> bool:
        """Whether this broker is one of a cluster."""
        return bool(self.etcd)

    @property
    def root(self) -> str:
        """The prefix of the cluster's keys in etcd."""
        return f"/penstock/{self.name}/"
