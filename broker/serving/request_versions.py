"""Convert messages between handlers and the wire: a request to its newest class, a response to the requested version.
Also build responses that contain only an error.

Handlers are written for the newest message classes; kraft.wire converts from and to older versions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from typing import Any

from kraft.wire import messages
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.messages.quirks import MessageDirection
from kraft.wire.rpc import FIRST_INTERNAL_KEY
from kraft.wire.server import Request

_WITHOUT_GENERAL_CODEC = frozenset({int(ApiKey.PRODUCE), int(ApiKey.FETCH)})


def read(request: Request) -> Any:
    """Return the request's body as the newest class of its API. Raises WireError if it does not parse."""
    return messages.decode_request(request.api_key, request.api_version, request.body)


def answer(request: Request, response: Any) -> None:
    """Answer with a message of the newest class."""
    request.respond(messages.encode_response(request.api_key, request.api_version, response))
    request.connection.meter.count_answer(request.api_key, response)


def respond(api_key: int, **fields: Any) -> Any:
    """Build the newest response of this API with these fields; the other fields have their defaults or zero."""
    return messages.build(messages.response_class(api_key), **fields)


@cache
def kind(api_key: int, name: str) -> Any:
    """Return a nested class of the newest response, by its schema name."""
    return messages.part_class(messages.response_class(api_key), name)


@cache
def request_part(api_key: int, name: str) -> Callable[..., Any]:
    """Return the builder of a nested class of the newest request, by its schema name; missing fields are zero."""
    return partial(messages.build, messages.part_class(messages.request_class(api_key), name))


@cache
def part(api_key: int, name: str) -> Callable[..., Any]:
    """Return the builder of a nested class of the newest response, by its schema name; missing fields are zero."""
    return partial(messages.build, kind(api_key, name))


def throttled(response: Any, throttle_ms: int) -> Any:
    """Return the response with its throttle time set."""
    if throttle_ms == 0:
        return response
    return dataclasses.replace(response, throttle_time=timedelta(milliseconds=throttle_ms))


def answer_error(request: Request, error: ErrorCode) -> bool:
    """Answer with only this error, if the requested version has a top-level error code. Return False if it has none."""
    key = request.api_key
    if key in _WITHOUT_GENERAL_CODEC or key >= FIRST_INTERNAL_KEY:
        return False
    cls = messages.versioned_class(key, request.api_version, MessageDirection.RESPONSE)
    if "error_code" not in {field.name for field in dataclasses.fields(cls)}:
        return False
    answer(request, respond(key, error_code=error))
    return True
