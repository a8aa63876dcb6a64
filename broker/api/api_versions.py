"""ApiVersions: the APIs and versions that this listener serves, and the cluster's features.

Any version of the request is answered. If the version is not served, the response is version 0 with UNSUPPORTED_VERSION
and the supported range of ApiVersions, so that a newer client can use an older version. Internal API keys are never
listed.
Source: KIP-35, KIP-511, KIP-584.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.image import MetadataImage
from kraft.wire import messages
from kraft.wire.api_keys import BROKER_APIS, ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.image import FeatureRange

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
SOFTWARE_CHARS_MAX = 64
"""Maximum length in characters of a client's software name in metrics, and of its software version."""
FIRST_WITH_SOFTWARE_NAME = 3
FIRST_WITH_ZERO_MINIMUM = 4
NO_FEATURES_EPOCH = -1
BODIES_MAX = 16
"""Maximum number of encoded responses that are kept, each for one version and one image."""


class ApiVersionsHandler:
    """The ApiVersions handler of one broker. It keeps encoded responses, because every client sends this request first
    and the responses seldom change."""

    def __init__(self, newest_image: Callable[[], MetadataImage], features: tuple[FeatureRange, ...]) -> None:
        """`features` are the features that this release supports."""
        self._newest_image = newest_image
        self._features = features
        self._bodies: dict[tuple[int, int], bytes] = {}
        """Encoded responses, by request version and offset of the image."""

    def handle(self, request: Request, session: Session) -> None:
        """Answer at once, even before the broker is unfenced."""
        served = BROKER_APIS[ApiKey.API_VERSIONS]
        if not served.min <= request.api_version <= served.max:
            request.respond(unsupported_version_body())
            request.connection.meter.count_error(ApiKey.API_VERSIONS, ErrorCode.UNSUPPORTED_VERSION)
            return
        message = read(request)
        if request.api_version >= FIRST_WITH_SOFTWARE_NAME and not (
            SOFTWARE_NAME.fullmatch(message.client_software_name)
            and SOFTWARE_NAME.fullmatch(message.client_software_version)
        ):
            answer(request, respond(ApiKey.API_VERSIONS, error_code=ErrorCode.INVALID_REQUEST))
            return
        if request.api_version >= FIRST_WITH_SOFTWARE_NAME:
            given = message.client_software_name, message.client_software_version
            request.connection.client_software = (given[0][:SOFTWARE_CHARS_MAX], given[1][:SOFTWARE_CHARS_MAX])
        request.respond(self._body(request.api_version))

    def _body(self, version: int) -> bytes:
        image, bodies = self._newest_image(), self._bodies
        state = (version, image.offset if image.features else NO_FEATURES_EPOCH)
        body = bodies.get(state)
        if body is None:
            if len(bodies) >= BODIES_MAX:
                bodies.clear()
            response = _response(image, self._features, version)
            body = bodies[state] = messages.encode_response(ApiKey.API_VERSIONS, version, response)
        return body


def unsupported_version_body() -> bytes:
    """Return the v0 body for an unsupported version: error 35, and ApiVersions as the only entry."""
    served = BROKER_APIS[ApiKey.API_VERSIONS]
    return struct.pack(">hihhh", ErrorCode.UNSUPPORTED_VERSION, 1, served.key, served.advertised_min, served.max)


def _response(image: MetadataImage, supported: tuple[FeatureRange, ...], version: int) -> Any:
    return respond(
        ApiKey.API_VERSIONS,
        api_keys=tuple(
            part(ApiKey.API_VERSIONS, "ApiVersion")(
                api_key=api.key, min_version=api.advertised_min, max_version=api.max
            )
            for _, api in sorted(BROKER_APIS.items())
        ),
        supported_features=tuple(
            part(ApiKey.API_VERSIONS, "SupportedFeatureKey")(
                name=feature.name, min_version=feature.min_level, max_version=feature.max_level
            )
            for feature in supported
            if feature.min_level > 0 or version >= FIRST_WITH_ZERO_MINIMUM
        ),
        finalized_features_epoch=image.offset if image.features else NO_FEATURES_EPOCH,
        finalized_features=tuple(_finalized(image)),
    )


def _finalized(image: MetadataImage) -> Iterator[Any]:
    finalized = part(ApiKey.API_VERSIONS, "FinalizedFeatureKey")
    for name in sorted(image.features):
        level = image.features[name]
        if level > 0:
            yield finalized(name=name, max_version_level=level, min_version_level=level)
