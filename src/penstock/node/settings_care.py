"""`SettingsCare`: the settings of one broker from its start on: in force, declared, read again.

Guarantees: when `begin` returns, every topic that the settings file declares is there or is told in
`problems`; from then on the file is followed, while `watch` runs. What single parts make of new
settings is their own business: they are added to `live` before `begin`.
"""

from functools import partial

from penstock.cluster.declaration_memory import DeclarationMemory
from penstock.cluster.service import MetadataService
from penstock.cluster.store import MetadataStore
from penstock.cluster.topic_rules import TopicRules
from penstock.core.clock import Clock
from penstock.core.metrics import Registry
from penstock.core.settings import Settings
from penstock.node.declared_topics import DeclaredTopics
from penstock.node.descriptors import claim_descriptors, connections_within
from penstock.node.live_settings import LiveSettings, follow_log_level
from penstock.node.settings_reload import SettingsReload, SettingsSource
from penstock.node.topic_administration import Topics
from penstock.node.topic_rules import topic_defaults


class SettingsCare:
    """What the owner of a broker has to do with its settings."""

    def __init__(self, given: Settings, source: SettingsSource | None) -> None:
        """Without a `source` the settings were handed in, and nothing is read again."""
        self._source = source
        self.files_max = claim_descriptors(given.listener.connections_max).files
        """How many files may be open."""
        self.live = LiveSettings(given, partial(_within_descriptors, self.files_max))
        self._declared: DeclaredTopics | None = None
        self._reload: SettingsReload | None = None

    async def begin(
        self,
        metadata: MetadataService,
        topics: Topics,
        store: MetadataStore,
        metrics: Registry,
        clock: Clock,
    ) -> None:
        """See to the declared topics, and be ready to follow changes."""
        live = self.live
        live.add_followers(follow_log_level, lambda now: metadata.follow_rules(topic_rules(now)))
        live.end_with(lambda now: topics.follow_defaults(topic_defaults(now.topic_defaults)))
        declared = self._declared = DeclaredTopics(metadata, topics, DeclarationMemory(store))
        metrics.gauge(
            "declared_topic_problems",
            "Topics that are not as the settings file declares them.",
            lambda: len(declared.problems),
        )
        await declared.reconcile(self._source.first.topics if self._source else ())
        if self._source is not None:
            self._reload = SettingsReload(self._source, live, declared, clock, metrics)

    async def watch(self) -> None:
        """Follow the settings file until cancelled; at once done when there is no source."""
        if self._reload is not None:
            await self._reload.run()

    @property
    def reload(self) -> SettingsReload | None:
        """What reads the settings again; None before `begin` and where there is no source."""
        return self._reload

    @property
    def problems(self) -> tuple[str, ...]:
        """What the operator wants and is not so: a refused file, declared topics."""
        refusal = None if self._reload is None else self._reload.refusal
        declared = () if self._declared is None else self._declared.problems
        return declared if refusal is None else (refusal, *declared)


def topic_rules(settings: Settings) -> TopicRules:
    """What new topics get and may have."""
    return TopicRules(partition_count_default=settings.topic_defaults.partitions_default)


def _within_descriptors(files: int, settings: Settings) -> Settings:
    """The settings with as many connections as there may be."""
    most = connections_within(settings.listener.connections_max, files)
    listener = settings.listener.model_copy(update={"connections_max": most})
    return settings.model_copy(update={"listener": listener})
