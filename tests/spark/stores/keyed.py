"""Pipelines into a store with keys that a test can make invalid and replace.

A catalog hands the keys out (`rest`), or they are in files that are replaced, as a secret manager
does it (`sql`, `delta`).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.oracle.object_store import ObjectStore
from tests.spark.stores.lake import Lake
from tests.spark.stores.proxies import CredentialProxy
from tests.spark.tables.pipeline_world import World

_users = count()


@dataclass
class Keys:
    """The keys of a pipeline, which a test can replace."""

    store: ObjectStore
    place: Callable[[str, str], None]
    """Gives keys to the pipeline."""
    access_key: str = ""
    all_secrets: list[str] = field(default_factory=list)

    def create(self) -> tuple[str, str]:
        """Keys of a new user."""
        number = next(_users)
        key, secret = f"user-{number}", f"canary-secret-{number}-of-the-store"
        self.store.add_user(key, secret)
        self.all_secrets.append(secret)
        return key, secret

    def give(self) -> None:
        """Give the pipeline its first keys."""
        self.access_key, secret = self.create()
        self.place(self.access_key, secret)

    def expire(self, *, late_seconds: float = 0.0) -> None:
        """Make the keys invalid; the pipeline has others, some time later."""
        key, secret = self.create()
        self.store.remove_user(self.access_key)
        time.sleep(late_seconds)
        self.place(key, secret)
        self.access_key = key


def keyed_world(
    kind: str, lake: Lake, proxy: CredentialProxy, folder: Path, bootstrap: str, topic: str
) -> tuple[World, Keys]:
    """A pipeline with keys that a test can replace."""
    if kind == "rest":
        world = lake.world(kind, folder, bootstrap, topic, uri=proxy.address)
        return world, Keys(lake.store, proxy.hand_out)
    files = [folder / "access-key", folder / "secret-key"]

    def place(*texts: str) -> None:
        for file, text in zip(files, texts, strict=True):
            file.with_suffix(".new").write_text(text + "\n")
            file.with_suffix(".new").replace(file)

    key, secret = (f"${{file:{file}}}" for file in files)
    return lake.world(kind, folder, bootstrap, topic, key=key, secret=secret), Keys(
        lake.store, place
    )


def secrets_in(folder: Path, keys: Keys) -> list[Path]:
    """The files below a folder with a secret in them, but for the files of the secrets."""
    return [
        file
        for file in folder.rglob("*")
        if file.is_file()
        and file.name != "secret-key"
        and any(secret.encode() in file.read_bytes() for secret in keys.all_secrets)
    ]
