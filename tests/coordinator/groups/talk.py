"""`Talk`: a group shard on a rig that is spoken to in the words of `vocabulary`."""

from typing import Any

from penstock.coordinator.groups.settings import GroupSettings
from penstock.coordinator.groups.shard import GroupShard
from penstock.coordinator.groups.state.classic_group import ClassicGroup, ClassicState
from tests.coordinator.groups.vocabulary import GroupVocabulary
from tests.coordinator.rig import ShardRig


class Talk:
    """A rig that is spoken to in words."""

    def __init__(self, **changes: Any) -> None:  # noqa: ANN401 - any setting
        self.words = GroupVocabulary(GroupSettings(**changes))
        self.rig: ShardRig[GroupShard] = ShardRig(self.words)

    def say(self, command: str, **arguments: object) -> int:
        texts = {key: str(value) for key, value in arguments.items()}
        spoken = self.words.commands[command](texts)
        return self.rig.ask(spoken.request, spoken.version, spoken.client_id)

    def ask(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 - a response of any API
        return self.rig.replies[self.say(command, **arguments)]

    def stable(self, *clients: str, **arguments: object) -> list[str]:
        """A stable group of these; returns their ids, the leader's first."""
        tickets = [
            self.say("join", **{"client": name, "topics": "t", "v": 3, **arguments})
            for name in clients
        ]
        self.rig.advance(9_000)
        ids = [self.reply(ticket).member_id for ticket in tickets]
        assign = ",".join(f"{member}:{member}" for member in ids)
        generation = self.group.generation_id
        for member in ids:
            self.say("sync", member=member, generation=generation, assign=assign)
        assert self.group.state is ClassicState.STABLE
        return ids

    def reply(self, ticket: int) -> Any:  # noqa: ANN401 - a response of any API
        return self.rig.replies[ticket]

    @property
    def state(self) -> str:
        """The state of group g, by name."""
        return self.group.state_name

    @property
    def group(self) -> ClassicGroup:
        return self.rig.shard.state.classic["g"]
