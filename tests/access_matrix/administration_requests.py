"""Requests of the matrix that are about the cluster, its settings, quotas, rules and users.

Changes are validated only, or name a user that does not exist.
"""

from collections.abc import Sequence
from typing import Final

from penstock.protocol.api_keys import ApiKey
from penstock.protocol.codec import Message
from penstock.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_quorum,
    describe_user_scram_credentials,
    incremental_alter_configs,
    list_config_resources,
    unregister_broker,
    update_features,
)
from penstock.security.acls.values import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from tests.access_matrix.names import (
    GROUP,
    MISSING_TOPIC,
    MISSING_USER,
    NODE_ID,
    OTHER_GROUP,
    OTHER_TOPIC,
    TOPIC,
    CaseList,
    World,
)

CASES: Final = CaseList()
TOPIC_CONFIGS, BROKER_CONFIGS, METRICS_CONFIGS, GROUP_CONFIGS = 2, 4, 16, 32
METADATA_TOPIC: Final = "__cluster_metadata"
METRICS: Final = "metrics"
SCRAM_SHA_256: Final = 1
RULE: Final = AclBinding(
    ResourceType.TOPIC,
    "unused",
    PatternType.LITERAL,
    f"User:{MISSING_USER}",
    "*",
    Operation.READ,
    Permission.ALLOW,
)
"""A rule of a user that does not exist; it is there from the beginning."""


@CASES.add(ApiKey.API_VERSIONS, 4)
def ask_versions(world: World) -> Message:
    return api_versions.ApiVersionsRequest(
        client_software_name="matrix", client_software_version="1"
    )


@CASES.add(ApiKey.DESCRIBE_CLUSTER, 2)
def describe_the_cluster(world: World) -> Message:
    return describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True)


def describe_configs_of(
    resources: Sequence[tuple[int, str]], keys: tuple[str, ...] | None = None
) -> Message:
    """Return a request for the settings of resources, by type and name."""
    return describe_configs.DescribeConfigsRequest(
        resources=tuple(
            describe_configs.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=keys
            )
            for kind, name in resources
        )
    )


@CASES.add(ApiKey.DESCRIBE_CONFIGS, 4)
def describe_all_configs(world: World) -> Message:
    return describe_configs_of(
        [
            *((TOPIC_CONFIGS, name) for name in (TOPIC, OTHER_TOPIC, MISSING_TOPIC)),
            *((GROUP_CONFIGS, name) for name in (GROUP, OTHER_GROUP)),
            (BROKER_CONFIGS, str(NODE_ID)),
        ]
    )


@CASES.add(ApiKey.DESCRIBE_CONFIGS, 4, "all brokers and client metrics")
def describe_other_configs(world: World) -> Message:
    # Penstock has no settings there: a key that neither broker has leaves the error codes.
    resources = [(BROKER_CONFIGS, ""), (METRICS_CONFIGS, METRICS)]
    return describe_configs_of(resources, ("no.such.setting",))


SETTINGS: Final = (
    (TOPIC_CONFIGS, TOPIC, "retention.ms", "1000000"),
    (TOPIC_CONFIGS, OTHER_TOPIC, "retention.ms", "1000000"),
    (TOPIC_CONFIGS, MISSING_TOPIC, "retention.ms", "1000000"),
    (GROUP_CONFIGS, GROUP, "consumer.session.timeout.ms", "50000"),
    (GROUP_CONFIGS, OTHER_GROUP, "consumer.session.timeout.ms", "50000"),
    (BROKER_CONFIGS, str(NODE_ID), "log.retention.ms", "1000000"),
)


@CASES.add(ApiKey.ALTER_CONFIGS, 2)
def alter_no_configs(world: World) -> Message:
    return alter_configs.AlterConfigsRequest(
        resources=tuple(
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=(alter_configs.AlterableConfig(name=key, value=value),),
            )
            for kind, name, key, value in SETTINGS
        ),
        validate_only=True,
    )


@CASES.add(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
def increment_no_configs(world: World) -> Message:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=tuple(
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=(
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=0, value=value
                    ),
                ),
            )
            for kind, name, key, value in (
                *SETTINGS,
                # Not in AlterConfigs, which would remove the settings that Kafka starts with.
                (BROKER_CONFIGS, "", "log.retention.ms", "1000000"),
            )
        ),
        validate_only=True,
    )


@CASES.add(ApiKey.LIST_CONFIG_RESOURCES, 1)
def list_resources(world: World) -> Message:
    return list_config_resources.ListConfigResourcesRequest(
        resource_types=(TOPIC_CONFIGS, BROKER_CONFIGS)
    )


@CASES.add(ApiKey.DESCRIBE_LOG_DIRS, 5)
def describe_directories(world: World) -> Message:
    asked = tuple(
        describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=(0,))
        for name in (TOPIC, OTHER_TOPIC)
    )
    return describe_log_dirs.DescribeLogDirsRequest(topics=asked)


@CASES.add(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)
def describe_quotas(world: World) -> Message:
    return describe_client_quotas.DescribeClientQuotasRequest(components=(), strict=False)


@CASES.add(ApiKey.ALTER_CLIENT_QUOTAS, 1)
def alter_no_quotas(world: World) -> Message:
    entity = alter_client_quotas.RequestEntityData(entity_type="user", entity_name=MISSING_USER)
    change = alter_client_quotas.OpData(key="producer_byte_rate", value=1_000.0, remove=False)
    return alter_client_quotas.AlterClientQuotasRequest(
        entries=(alter_client_quotas.RequestEntryData(entity=(entity,), ops=(change,)),),
        validate_only=True,
    )


@CASES.add(ApiKey.DESCRIBE_QUORUM, 2)
def describe_the_quorum(world: World) -> Message:
    partition = describe_quorum.RequestPartitionData(partition_index=0)
    asked = describe_quorum.RequestTopicData(topic_name=METADATA_TOPIC, partitions=(partition,))
    return describe_quorum.DescribeQuorumRequest(topics=(asked,))


@CASES.add(ApiKey.UPDATE_FEATURES, 2)
def update_no_features(world: World) -> Message:
    return update_features.UpdateFeaturesRequest(
        timeout_ms=10_000, feature_updates=(), validate_only=True
    )


@CASES.add(ApiKey.UNREGISTER_BROKER, 0)
def unregister_a_broker_that_is_not_there(world: World) -> Message:
    return unregister_broker.UnregisterBrokerRequest(broker_id=99)


def creation(rule: AclBinding) -> create_acls.AclCreation:
    """Return a rule as the message to create it has it."""
    return create_acls.AclCreation(
        resource_type=rule.resource_type,
        resource_name=rule.name,
        resource_pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


@CASES.add(ApiKey.CREATE_ACLS, 3)
def create_rule(world: World) -> Message:
    return create_acls.CreateAclsRequest(creations=(creation(RULE),))


@CASES.add(ApiKey.DESCRIBE_ACLS, 3)
def describe_rules(world: World) -> Message:
    return describe_acls.DescribeAclsRequest(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=f"User:{MISSING_USER}",
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )


@CASES.add(ApiKey.DELETE_ACLS, 3)
def delete_no_rules(world: World) -> Message:
    return delete_acls.DeleteAclsRequest(
        filters=(
            delete_acls.DeleteAclsFilter(
                resource_type_filter=ResourceType.GROUP,
                resource_name_filter=None,
                pattern_type_filter=PatternType.ANY,
                principal_filter=f"User:{MISSING_USER}",
                host_filter=None,
                operation=Operation.ANY,
                permission_type=Permission.ANY,
            ),
        )
    )


@CASES.add(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0)
def describe_missing_user(world: World) -> Message:
    # Kafka 4.3.1 never answers a denied request for all users: its error handling fails.
    name = describe_user_scram_credentials.UserName(name=MISSING_USER)
    return describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=(name,))


@CASES.add(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0)
def delete_missing_user(world: World) -> Message:
    deletion = alter_user_scram_credentials.ScramCredentialDeletion(
        name=MISSING_USER, mechanism=SCRAM_SHA_256
    )
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=(deletion,), upsertions=()
    )
