"""Settings of topics, groups and brokers as answers; an error in the result is raised. No IO."""

from penstock.admin.model import Setting, SettingList
from penstock.client.setting_sources import source_text
from penstock.client.transport.call import raise_error
from penstock.protocol.messages.describe_configs import DescribeConfigsResult


def setting_list(result: DescribeConfigsResult) -> SettingList:
    """Return every setting with its value and the source of the value, by name."""
    raise_error(result.error_code, result.error_message, result.resource_name)
    return SettingList(
        settings=[
            Setting(
                name=config.name,
                value=config.value,
                source=source_text(config.config_source),
                read_only=config.read_only,
            )
            for config in sorted(result.configs, key=lambda config: config.name)
        ]
    )
