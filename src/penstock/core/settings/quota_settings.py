"""The measurement of quotas, with Kafka 4.3's defaults; a part of `settings`.

The quotas themselves are not settings: they belong to users, client ids and addresses, and are
changed over the wire.
"""

from typing import Annotated

from pydantic import Field

from penstock.core.settings.settings_section import Section


class QuotasSettings(Section):
    """How long the use of a quota is remembered."""

    window_count: Annotated[
        int,
        Field(
            ge=1,
            le=3_600,
            description="Windows over which bytes, time and connections are averaged, the one that "
            "has begun included.",
            json_schema_extra={"unit": "windows", "kafka": "quota.window.num"},
        ),
    ] = 11
    window_seconds: Annotated[
        int,
        Field(
            ge=1,
            le=3_600,
            description="Length of one window.",
            json_schema_extra={"unit": "seconds", "kafka": "quota.window.size.seconds"},
        ),
    ] = 1
    controller_window_count: Annotated[
        int,
        Field(
            ge=1,
            le=3_600,
            description="Windows that a burst of created and deleted partitions may use at once.",
            json_schema_extra={"unit": "windows", "kafka": "controller.quota.window.num"},
        ),
    ] = 11
    controller_window_seconds: Annotated[
        int,
        Field(
            ge=1,
            le=3_600,
            description="Length of one window for created and deleted partitions.",
            json_schema_extra={"unit": "seconds", "kafka": "controller.quota.window.size.seconds"},
        ),
    ] = 1
