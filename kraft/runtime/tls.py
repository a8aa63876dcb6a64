"""TLS settings and contexts: PEM files in, `ssl` contexts out, read again for new connections when the files change.

Source: broker-level keys ssl.keystore.*, ssl.truststore.*, ssl.client.auth; principals are distinguished names as
RFC 2253 writes them, which is what Kafka's `ssl.principal.mapping.rules` match.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from enum import Enum


class ClientAuth(Enum):
    """ssl.client.auth: whether a listener asks its clients for a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """PEM files of one listener, or of one dialling client. A key may stand in the certificate's file."""

    certificate_path: str | None = None
    key_path: str | None = None
    key_password: str | None = None
    authorities_path: str | None = None
    """Whom to trust; None: the system's authorities."""
    client_auth: ClientAuth = ClientAuth.NONE
    verify_peer: bool = True
    """False: a client takes any server certificate. For tests and first steps only."""
    verify_hostname: bool = True
    """ssl.endpoint.identification.algorithm: the server's certificate must name the host that was dialled."""


class TlsConfigError(Exception):
    """A certificate, key or authority file cannot be used; the text names it and says what to do."""


class TlsContexts:
    """One context per settings and side, rebuilt when a file was changed."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[TlsSettings, bool], tuple[object, ssl.SSLContext]] = {}

    def server(self, settings: TlsSettings) -> ssl.SSLContext:
        return self._context(settings, server=True)

    def client(self, settings: TlsSettings) -> ssl.SSLContext:
        return self._context(settings, server=False)

    def _context(self, settings: TlsSettings, *, server: bool) -> ssl.SSLContext:
        stamp = _stamp(settings)
        known = self._contexts.get((settings, server))
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            context = _server_context(settings) if server else _client_context(settings)
        except (TlsConfigError, OSError):
            if known is None:
                raise
            return known[1]  # files that are being replaced: go on with what worked
        self._contexts[settings, server] = (stamp, context)
        return context


def _stamp(settings: TlsSettings) -> object:
    """What tells whether the files were changed."""
    paths = (settings.certificate_path, settings.key_path, settings.authorities_path)
    stamps = []
    for path in paths:
        try:
            stamps.append(os.stat(path).st_mtime_ns if path is not None else None)
        except OSError:
            stamps.append(-1)
    return tuple(stamps)


def _server_context(settings: TlsSettings) -> ssl.SSLContext:
    if settings.certificate_path is None:
        raise TlsConfigError("a TLS listener needs a certificate: set ssl.keystore.location to a PEM file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, settings)
    if settings.client_auth is not ClientAuth.NONE:
        required = settings.client_auth is ClientAuth.REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _client_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verify_peer and settings.verify_hostname
    if not settings.verify_peer:
        context.verify_mode = ssl.CERT_NONE
    _load(context, settings)
    if settings.authorities_path is None and settings.verify_peer:
        context.load_default_certs()
    return context


def _load(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.certificate_path is not None:
        _require_pem(settings.certificate_path)
        try:
            context.load_cert_chain(settings.certificate_path, settings.key_path, settings.key_password or "")
        except ssl.SSLError as error:
            text = f"{settings.certificate_path}: certificate and key do not load ({error.reason or error})"
            raise TlsConfigError(text) from error
    if settings.authorities_path is not None:
        _require_pem(settings.authorities_path)
        try:
            context.load_verify_locations(settings.authorities_path)
        except ssl.SSLError as error:
            text = f"{settings.authorities_path}: no authorities in it ({error.reason or error})"
            raise TlsConfigError(text) from error


def _require_pem(path: str) -> None:
    try:
        with open(path, "rb") as source:
            head = source.read(4)
    except OSError as error:
        raise TlsConfigError(f"cannot read {path}: {error.strerror}") from error
    if head == b"\xfe\xed\xfe\xed":
        how = "`keytool -importkeystore -deststoretype PKCS12`, then to PEM with openssl"
        raise TlsConfigError(f"{path} is a JKS store: convert it with {how}")
    if head[:2] == b"\x30\x82":
        how = f"`openssl pkcs12 -in {path} -nodes -out store.pem`"
        raise TlsConfigError(f"{path} is a PKCS12 store: convert it with {how}")


_ATTRIBUTES = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}


def distinguished_name(certificate: object) -> str | None:
    """The subject of `ssl`'s parsed certificate, as RFC 2253 writes it (last part first); None if there is none."""
    if not isinstance(certificate, dict) or not certificate.get("subject"):
        return None
    parts = []
    for group in reversed(certificate["subject"]):
        parts.append("+".join(f"{_ATTRIBUTES.get(name, name)}={_escape(value)}" for name, value in group))
    return ",".join(parts)


def _escape(value: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in ',+"\\<>;=' else letter for letter in value)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if escaped.endswith(" ") and len(value) > 1:
        escaped = escaped[:-1] + "\\ "
    return escaped
