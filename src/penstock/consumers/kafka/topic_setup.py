"""Topics of a consumer: checks the consumed topic, creates the retry and dead-letter topics.

A missing topic that is consumed is an error, because a typing mistake would wait for ever. Retry
and dead-letter topics are created with the defaults of the cluster; existing ones stay unchanged.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.consumers.errors import ConsumerError
from penstock.consumers.kafka import library
from penstock.consumers.options import ConsumerOptions

TIMEOUT_SECONDS: Final = 30.0
_BROKER_DEFAULT: Final = -1


def prepare_topics(options: ConsumerOptions, settings: Mapping[str, Any]) -> None:
    """Check and create the topics; this blocks, so it runs in a thread."""
    kafka, admin_module = library.load(), library.load(".admin")
    admin = admin_module.AdminClient(dict(settings))
    try:
        existing = admin.list_topics(timeout=TIMEOUT_SECONDS).topics
    except kafka.KafkaException as error:
        raise ConsumerError(
            f"no broker answered at {settings.get('bootstrap.servers')}: {error}.",
            hint="Check the address and that the broker runs: `penstock status`.",
        ) from error
    if options.topic not in existing:
        raise ConsumerError(
            f"topic {options.topic!r} not found.",
            hint=f"Create it with `penstock topic create {options.topic}`.",
        )
    wanted = [one for one in (options.retry_topic, options.dead_letter) if one is not None]
    missing = [one for one in wanted if one not in existing]
    if not missing:
        return
    futures = admin.create_topics(
        [
            admin_module.NewTopic(
                one, num_partitions=_BROKER_DEFAULT, replication_factor=_BROKER_DEFAULT
            )
            for one in missing
        ]
    )
    for name, future in futures.items():
        try:
            future.result(TIMEOUT_SECONDS)
        except kafka.KafkaException as error:
            if error.args[0].code() == kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                continue  # another member was faster
            raise ConsumerError(
                f"topic {name!r} could not be created: {error}.",
                hint=f"Create it with `penstock topic create {name}`, or allow it with "
                "`penstock acl add`.",
            ) from error
