"""`Transport`: the broker's side of a connection without a socket."""

import asyncio
from typing import cast

from penstock.protocol.connection import ClientConnection


class Transport(asyncio.Transport):
    """Counts the answers that the broker writes, and notes whether it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.client = ClientConnection("test")
        self.answers = 0
        self.is_reading_paused = False
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.client.receive_data(data)
        while self.client.next_response() is not None:
            self.answers += 1

    def writelines(self, list_of_data: object) -> None:
        for data in cast("list[bytes]", list_of_data):
            self.write(data)
