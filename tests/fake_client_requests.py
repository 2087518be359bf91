"""What the fakes of ``KafkaClient`` have in common: numbered requests, and responses that were encoded and decoded."""

from __future__ import annotations

from itertools import count
from typing import Any

from zkconsumer.kafka.net.client_request import ClientRequest, RequestBuilder, RequestCompletionHandler
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_response, encode_response
from zkconsumer.wire.schemas import FETCH


class NumberedRequests:
    """The part of ``KafkaClient`` that creates requests."""

    def __init__(self) -> None:
        self._numbers = count()

    def new_client_request(
        self,
        node_id: int,
        builder: RequestBuilder,
        created_ms: int,
        *,
        expects_response: bool = True,
        request_timeout_ms: int | None = None,
        callback: RequestCompletionHandler | None = None,
    ) -> ClientRequest:
        assert request_timeout_ms is not None
        return ClientRequest(
            node_id, builder, next(self._numbers), created_ms, request_timeout_ms, expects_response, callback
        )


def decoded_response(request: ClientRequest, version: int, body: Any) -> Any:
    """What a client decodes when a broker answers with ``body``."""
    api = request.builder.api
    schema = FETCH if api.key == FETCH.key else api  # the fetcher has its own decoder
    frame = encode_response(schema, version, request.correlation_id, body)[SIZE_BYTES:]
    return decode_response(api, version, memoryview(bytearray(frame)))[1]
