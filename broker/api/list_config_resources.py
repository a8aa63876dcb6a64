"""ListConfigResources: the names of all resources with a configuration (KIP-1142). Version 0 of this API has the name
ListClientMetricsResources.

Source: ListConfigResourcesRequest 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from kraft.broker.serving.gates import Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.image import ConfigResourceType, MetadataImage
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.broker.api.context import HandlerContext

KEY = ApiKey.LIST_CONFIG_RESOURCES
FIRST_WITH_TYPES = 1


def handle_list_config_resources(context: HandlerContext, request: Request, session: Session) -> None:
    """List the names of the requested types, or of every type. The client needs DESCRIBE_CONFIGS on the cluster."""
    wanted = read(request).resource_types if request.api_version >= FIRST_WITH_TYPES else (_METRICS,)
    if not context.gates.authorize_cluster(session, Operation.DESCRIBE_CONFIGS):
        answer(request, respond(KEY, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        return
    if not set(wanted) <= set(_NAMES):
        answer(request, respond(KEY, error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    types = dict.fromkeys(ConfigResourceType(number) for number in wanted or _NAMES)
    resource = part(KEY, "ConfigResource")
    rows = tuple(
        resource(resource_name=name, resource_type=int(type_))
        for type_ in types
        for name in _NAMES[type_](context.image)
    )
    answer(request, respond(KEY, config_resources=rows))


def _configured(type_: ConfigResourceType) -> Callable[[MetadataImage], Iterable[str]]:
    """Return a function that lists the resources of this type. A resource of such a type exists if it has configs."""
    return lambda image: [name for kind, name in image.sorted_config_keys() if kind == type_]


def _topics(image: MetadataImage) -> Iterable[str]:
    return image.topics.names


def _brokers(image: MetadataImage) -> Iterable[str]:
    return [str(broker_id) for broker_id in image.broker_ids() if image.is_alive(broker_id)]


_METRICS = ConfigResourceType.CLIENT_METRICS
_NAMES: Mapping[int, Callable[[MetadataImage], Iterable[str]]] = MappingProxyType(
    {
        ConfigResourceType.TOPIC: _topics,
        ConfigResourceType.BROKER: _brokers,
        ConfigResourceType.BROKER_LOGGER: _brokers,
        ConfigResourceType.CLIENT_METRICS: _configured(ConfigResourceType.CLIENT_METRICS),
        ConfigResourceType.GROUP: _configured(ConfigResourceType.GROUP),
    }
)
