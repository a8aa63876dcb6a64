"""Access control lists, quotas, and users that authenticate with SCRAM. Brokers never return a user's salt or keys.

Source: DescribeAclsRequest, DescribeClientQuotasRequest (KIP-546), DescribeUserScramCredentialsRequest (KIP-554).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from kraft.client.admin.routing import Router, require_success
from kraft.wire.api_keys import ApiKey
from kraft.wire.error_codes import ErrorCode

ANY = 1
"""Number in an ACL filter's field that matches every value of the field."""


class AclResource(IntEnum):
    """Kafka's ResourceType of an ACL: the kind of resource to which the entry applies."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """Kafka's PatternType: how an entry names its resource."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Kafka's AclOperation: the operation that an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Whether an ACL entry allows or denies the operation."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class ScramMechanism(IntEnum):
    """Kafka's SCRAM mechanisms, with their numbers in requests and responses."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def word(self) -> str:
        return self.name.replace("_", "-")


@dataclass(frozen=True, slots=True)
class Acl:
    """An entry of an access control list; the values are Kafka's names (TOPIC, LITERAL, READ, ALLOW)."""

    resource_type: str
    resource: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota. `entity` has the names to which the quota applies, by type (user, client-id, ip). The name None is the
    default entity of its type."""

    entity: Mapping[str, str | None]
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class ScramUser:
    """A user that can authenticate with a SCRAM mechanism."""

    user: str
    mechanism: str
    iterations: int


class Access:
    """Access control lists, quotas and SCRAM users of a cluster."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def acls(self, resource_type: AclResource = AclResource.ANY, resource: str | None = None) -> tuple[Acl, ...]:
        """Return all ACL entries, sorted. If a resource type or a resource name is given, return only entries of
        matching resources."""
        answer = await self._router.ask_any(
            ApiKey.DESCRIBE_ACLS,
            resource_type_filter=int(resource_type),
            resource_name_filter=resource,
            pattern_type_filter=int(AclPattern.ANY),
            principal_filter=None,
            host_filter=None,
            operation=ANY,
            permission_type=ANY,
        )
        require_success(answer, "the access control lists")
        found = [
            Acl(
                _word(AclResource, told.resource_type),
                str(told.resource_name),
                _word(AclPattern, told.pattern_type),
                str(one.principal),
                str(one.host),
                _word(AclOperation, one.operation),
                _word(AclPermission, one.permission_type),
            )
            for told in answer.resources
            for one in told.acls
        ]
        return tuple(sorted(found, key=lambda acl: (acl.resource_type, acl.resource, acl.principal, acl.operation)))

    async def quotas(self) -> tuple[Quota, ...]:
        """Return all quotas."""
        answer = await self._router.ask_any(ApiKey.DESCRIBE_CLIENT_QUOTAS, components=(), strict=False)
        require_success(answer, "the quotas")
        return tuple(
            Quota({str(part.entity_type): part.entity_name for part in told.entity}, str(limit.key), float(limit.value))
            for told in answer.entries or ()
            for limit in told.values
        )

    async def scram_users(self, users: Iterable[str] | None = None) -> tuple[ScramUser, ...]:
        """Return a row for each user and SCRAM mechanism, sorted by name. `users` limits the result to these users;
        users that do not exist are left out."""
        names = None if users is None else [{"name": name} for name in users]
        answer = await self._router.ask_any(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=names)
        require_success(answer, "the SCRAM users")
        found: list[ScramUser] = []
        for told in answer.results:
            if told.error_code == ErrorCode.RESOURCE_NOT_FOUND:
                continue
            require_success(told, f"user {told.user}")
            found += [
                ScramUser(str(told.user), ScramMechanism(int(one.mechanism)).word, int(one.iterations))
                for one in told.credential_infos
            ]
        return tuple(sorted(found, key=lambda one: (one.user, one.mechanism)))


def _word(kind: type[IntEnum], number: Any) -> str:
    """Return the name of the enum member with this number. If this enum lacks the number, return the number as text."""
    return kind(int(number)).name if int(number) in kind._value2member_map_ else str(int(number))
