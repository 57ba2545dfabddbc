"""Every golden conversation is replayed and must give the written reactions.

The name of a file begins with the kind of shard: `transaction_`, `share_state_`, or anything else
for groups.
`pytest tests/coordinator/test_conversations.py --rewrite` writes them again.
"""

from pathlib import Path

import pytest

from tests.coordinator.conversation import check_file
from tests.coordinator.groups.vocabulary import GroupVocabulary

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.name for path in GOLDEN.glob("*.txt"))


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_reads_as_it_is_written(name: str, request: pytest.FixtureRequest) -> None:
    rewrite = bool(request.config.getoption("--rewrite"))
    if name.startswith("transaction_"):
        from tests.coordinator.transactions.vocabulary import TransactionVocabulary

        check_file(GOLDEN / name, TransactionVocabulary(), rewrite=rewrite)
    elif name.startswith("share_state_"):
        from tests.coordinator.shares.vocabulary import ShareVocabulary

        check_file(GOLDEN / name, ShareVocabulary(), rewrite=rewrite)
    else:
        check_file(GOLDEN / name, GroupVocabulary(), rewrite=rewrite)


def test_there_are_conversations() -> None:
    assert len(NAMES) >= 5
