"""A grant whose caller goes away: the service releases its lease."""

import asyncio

from penstock.storage.service import StorageService
from penstock.testing.memory_disk import MemoryDisk
from tests.storage.leases.leasing import Scene


def test_a_cancelled_caller_leaves_no_lease() -> None:
    scene = Scene(MemoryDisk())

    async def go() -> None:
        service = StorageService(
            scene.manager,
            scene.clock,
            on_durable=lambda _logs: None,
            on_failure=lambda _path, _error: None,
        )
        service.start(asyncio.get_running_loop())
        # The grant waits for this lock, and its caller does not.
        async with service._file_removal:
            try:
                async with asyncio.timeout(0.01):
                    await service.grant_lease([scene.wish()], 3_600, "User:a")
            except TimeoutError:
                pass
        while service._cuts:
            await asyncio.wait(service._cuts)
            await asyncio.sleep(0)
        assert service.leases.notes() == []
        assert await service.grant_lease([scene.wish()], 3_600, "User:a")
        assert len(service.leases.notes()) == 1
        await service._pool.stop(1.0)  # type: ignore[union-attr]

    asyncio.run(go())
    assert len(scene.disk.list_directory("/data/leases")) == 1
