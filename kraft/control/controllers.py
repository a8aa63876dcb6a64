"""Decisions about controllers: bootstrap of an empty log, and registration."""

from __future__ import annotations

from kraft.control.commands import ActivateController, RegisterControllerCommand
from kraft.control.configs.incremental import MIN_INSYNC_REPLICAS
from kraft.control.decision import Context, Decision
from kraft.control.features import bootstrap_feature_events, unsupported_feature
from kraft.control.replies import RegisterControllerReply
from kraft.image import ConfigResourceType, ControllerRegistration, MetadataImage
from kraft.image.events import ClusterIdentity, Config, Event, RegisterController
from kraft.image.registrations import is_node_id
from kraft.wire.error_codes import ErrorCode


def decide_activate(image: MetadataImage, context: Context, _command: ActivateController) -> Decision:
    """Bootstrap an empty log in one atomic batch: features, cluster id, and the min.insync.replicas on which eligible
    leader replicas depend."""
    if image.metadata_version:
        return Decision(depends_on=image.offset)
    return Decision(events=tuple(bootstrap_events(context)), depends_on=image.offset)


def bootstrap_events(context: Context) -> list[Event]:
    """Return the first events of a new cluster's log."""
    min_insync_replicas = str(context.config.integer(MIN_INSYNC_REPLICAS))
    return [
        *bootstrap_feature_events(),
        ClusterIdentity(context.cluster_id),
        Config(int(ConfigResourceType.BROKER), "", MIN_INSYNC_REPLICAS, min_insync_replicas),
    ]


def decide_register_controller(image: MetadataImage, context: Context, command: RegisterControllerCommand) -> Decision:
    """Record a controller's endpoints and features, if they have changed."""
    if command.cluster_id != context.cluster_id:
        reply = RegisterControllerReply(
            error_code=ErrorCode.INCONSISTENT_CLUSTER_ID, error_message=f"this is cluster {context.cluster_id}"
        )
        return Decision(reply=reply, depends_on=image.offset)
    if not is_node_id(command.controller_id):
        text = f"{command.controller_id} is not a controller id"
        reply = RegisterControllerReply(error_code=ErrorCode.INVALID_REGISTRATION, error_message=text)
        return Decision(reply=reply, depends_on=image.offset)
    missing = unsupported_feature(image, command.features)
    if missing is not None:
        reply = RegisterControllerReply(error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=missing)
        return Decision(reply=reply, depends_on=image.offset)
    new = ControllerRegistration(command.controller_id, command.incarnation_id, command.endpoints, command.features)
    if image.controllers.get(command.controller_id) == new:
        return Decision(reply=RegisterControllerReply(), depends_on=image.offset)
    return Decision(events=(RegisterController(*new),), reply=RegisterControllerReply(), depends_on=image.offset)
