"""A proxy in front of one broker that keeps every frame in both directions.

Java client --> proxy --> broker        frames are kept as they came
            <-- proxy <-- broker        kept, then: the broker's own address in it becomes the proxy's
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable
from contextlib import suppress
from types import TracebackType
from typing import Any

from tests.wire_oracles.recorded_frames import Frame
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_request_header, decode_response, encode_response
from zkconsumer.wire.schemas import APIS, DESCRIBE_CLUSTER, FIND_COORDINATOR, METADATA

HOST = "127.0.0.1"
FRAME_BYTES_MAX = 16 * 1024 * 1024
CONNECT_TIMEOUT_MS = 10_000

_SIZE = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")


class RecordingProxy:
    """``frames``: of known APIs, in the order in which they passed.  ``unknown``: keys and versions of others."""

    def __init__(self, broker_port: int) -> None:
        self.frames: list[Frame] = []
        self.unknown: set[tuple[int, int]] = set()
        self.port = 0
        self._broker_port = broker_port
        self._loop = asyncio.new_event_loop()
        self._deaths: list[BaseException] = []
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, HOST, 0))
        self.port = self._server.sockets[0].getsockname()[1]
        self._worker = spawn("recording-proxy", self._run, lambda _, error: self._deaths.append(error), wake=self._wake)

    @property
    def address(self) -> str:
        """What clients take for the broker."""
        return f"{HOST}:{self.port}"

    def __enter__(self) -> RecordingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._worker.stop(CONNECT_TIMEOUT_MS)
        assert not self._deaths, self._deaths

    def _run(self, stop: StopSignal) -> None:
        self._loop.run_forever()
        self._server.close()
        self._loop.run_until_complete(_end_all())
        self._loop.close()

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: dict[int, tuple[int, int]] = {}
        writers = [writer]
        try:
            to_broker = await asyncio.open_connection(HOST, self._broker_port)
            writers.append(to_broker[1])
            ways: list[Awaitable[None]] = [
                self._requests(reader, to_broker[1], asked),
                self._answers(to_broker[0], writer, asked),
            ]
            pumps = [asyncio.ensure_future(way) for way in ways]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass  # the broker is gone: so is the connection
        finally:
            for each in writers:
                each.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, int]]
    ) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                data = await _frame(reader)
                header = decode_request_header(data)
                asked[header.correlation_id] = header.api_key, header.api_version
                self._keep(True, header.api_key, header.api_version, data)
                writer.write(_SIZE.pack(len(data)) + data)
                await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[int, int]]
    ) -> None:
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                data = await _frame(reader)
                key, version = asked.pop(_CORRELATION.unpack_from(data)[0])
                self._keep(False, key, version, data)
                writer.write(self._through_us(key, version, data))
                await writer.drain()

    def _keep(self, is_request: bool, key: int, version: int, data: bytes) -> None:
        api = APIS.get(key)
        if api is not None and api.supports(version):
            self.frames.append(Frame(is_request, api, version, data))
        else:
            self.unknown.add((key, version))

    def _through_us(self, key: int, version: int, data: bytes) -> bytes:
        """The answer with its size; clients shall go on talking to us, not to the broker."""
        api = APIS.get(key)
        if api not in (METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER):
            return _SIZE.pack(len(data)) + data
        correlation_id, body = decode_response(api, version, data)
        for row in _with_address(body):
            if row.port == self._broker_port:
                row.port = self.port
        return encode_response(api, version, correlation_id, body)


async def _end_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _with_address(body: Any) -> list[Any]:
    rows = [*getattr(body, "brokers", []), *getattr(body, "coordinators", [])]
    return [*rows, body] if hasattr(body, "port") else rows


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _SIZE.unpack(await reader.readexactly(SIZE_BYTES))
    assert 0 <= size <= FRAME_BYTES_MAX, f"a frame of {size} bytes"
    return await reader.readexactly(size)
