"""APIs of features that this cluster does not have. They are answered like a Kafka broker on which the feature is off.

These APIs are advertised, as by Kafka. Otherwise a client would report an old broker. The response names the feature if
the message has a field for text. The broker logs the missing feature, once per client and minute.
Source: Kafka's AclApis (no authorizer), KafkaApis (SASL on another listener).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from kraft.broker.serving.gates import Gates, Operation
from kraft.broker.serving.request_versions import answer, part, read, respond
from kraft.broker.serving.session import Session
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode
from kraft.wire.server import Request

if TYPE_CHECKING:
    from kraft.node.log_limit import LogLimit

log = structlog.get_logger("kraft.broker.absent_features")

NO_AUTHORIZER = "No Authorizer is configured"
"""Error text of a Kafka broker without an authorizer. On this broker no authorizer can be configured."""
NO_ACLS = "this cluster has no ACLs yet: every request is allowed"
NO_SASL = "no listener of this cluster speaks SASL yet"


def warn(log_limit: LogLimit, session: Session, event: str, missing: str) -> None:
    """Log the missing feature that the client requested, once per client and minute."""
    log_limit.warning(
        log,
        event,
        client=f"{session.client_address} {session.client_id}",
        missing=missing,
        client_id=session.client_id,
        client_address=session.client_address,
        listener=session.listener,
    )


# ACLs


def handle_describe_acls(gates: Gates, log_limit: LogLimit, request: Request, session: Session) -> None:
    """Reject DescribeAcls with SECURITY_DISABLED. The client needs DESCRIBE on the cluster."""
    read(request)
    error, text = ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER} on the broker: {NO_ACLS}"
    if not gates.authorize_cluster(session, Operation.DESCRIBE):
        error, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ""
    else:
        warn(log_limit, session, "a client asks for ACLs", NO_ACLS)
    answer(request, respond(ApiKey.DESCRIBE_ACLS, error_code=error, error_message=text or None))


def handle_create_acls(gates: Gates, log_limit: LogLimit, request: Request, session: Session) -> None:
    """Reject each ACL of a CreateAcls request. The client needs ALTER on the cluster."""
    error, text = _acl_refusal(gates, log_limit, session)
    row = part(ApiKey.CREATE_ACLS, "AclCreationResult")
    rows = [row(error_code=error, error_message=text) for _ in read(request).creations]
    answer(request, respond(ApiKey.CREATE_ACLS, results=rows))


def handle_delete_acls(gates: Gates, log_limit: LogLimit, request: Request, session: Session) -> None:
    """Reject each filter of a DeleteAcls request. The client needs ALTER on the cluster."""
    error, text = _acl_refusal(gates, log_limit, session)
    row = part(ApiKey.DELETE_ACLS, "DeleteAclsFilterResult")
    rows = [row(error_code=error, error_message=text) for _ in read(request).filters]
    answer(request, respond(ApiKey.DELETE_ACLS, filter_results=rows))


def _acl_refusal(gates: Gates, log_limit: LogLimit, session: Session) -> tuple[ErrorCode, str | None]:
    if not gates.authorize_cluster(session, Operation.ALTER):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None
    warn(log_limit, session, "a client changes ACLs", NO_ACLS)
    return ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}. {NO_ACLS[0].upper()}{NO_ACLS[1:]}"


# SASL


def handle_sasl_handshake(gates: Gates, log_limit: LogLimit, request: Request, session: Session) -> None:
    """Answer a client that is configured for SASL. The response lists no enabled mechanism, so the client reports that
    none is enabled."""
    read(request)
    _warn_of_sasl(log_limit, session)
    answer(request, respond(ApiKey.SASL_HANDSHAKE, error_code=ErrorCode.ILLEGAL_SASL_STATE))


def handle_sasl_authenticate(gates: Gates, log_limit: LogLimit, request: Request, session: Session) -> None:
    """Reject the token of a client that did not wait for the response to its handshake."""
    read(request)
    _warn_of_sasl(log_limit, session)
    text = (
        f"SaslAuthenticate request received on the {session.security_protocol} listener {session.listener}: {NO_SASL}"
    )
    answer(request, respond(ApiKey.SASL_AUTHENTICATE, error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=text))


def _warn_of_sasl(log_limit: LogLimit, session: Session) -> None:
    event = "a client begins SASL: set its security.protocol to that of the listener"
    warn(log_limit, session, f"{event} ({session.security_protocol})", NO_SASL)
