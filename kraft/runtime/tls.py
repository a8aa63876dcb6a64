"""TLS settings and contexts: creates `ssl` contexts from PEM files, and reads changed files again for new connections.

Principals are distinguished names in the form of RFC 2253, which Kafka's `ssl.principal.mapping.rules` match.
Source: Kafka's SslConfigs, RFC 2253.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from kraft.seam import require

_VERSIONS = MappingProxyType({"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3})


class ClientAuth(Enum):
    """Whether a listener requests certificates from its clients: the values of ssl.client.auth."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """TLS of one listener, or of one dialling client: PEM in files, or PEM text. A key may be in the certificate's
    file."""

    certificate_path: str | None = None
    key_path: str | None = None
    certificate_and_key: str | None = None
    """PEM text of certificate and key, instead of files."""
    key_password: str | None = None
    authorities_path: str | None = None
    authorities: str | None = None
    """PEM text of the trusted authorities. Without it and without a file, a client trusts the system's authorities."""
    client_auth: ClientAuth = ClientAuth.NONE
    verify_peer: bool = True
    """Whether a client checks the server's certificate. If False, it accepts any; for tests and first steps only."""
    verify_hostname: bool = True
    """Whether the server's certificate must name the host that was dialled (ssl.endpoint.identification.algorithm)."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    """OpenSSL's names of the permitted cipher suites of TLS 1.2; TLS 1.3 has its own fixed ones. Empty: OpenSSL's
    defaults."""


class TlsConfigError(Exception):
    """A certificate, key or authority file cannot be used; the text names it and says what to do."""


def tls_settings(tls: object | None) -> TlsSettings | None:
    """Return the settings of a binding or a peer, converted if they come from a node's configuration."""
    if tls is None or isinstance(tls, TlsSettings):
        return tls
    from kraft.config import TlsConfig  # here, because clients do not need the tables of kraft.config

    require(isinstance(tls, TlsConfig), f"tls is a {type(tls).__name__}, neither TlsSettings nor TlsConfig")
    assert isinstance(tls, TlsConfig)
    in_line = f"{tls.private_key}\n{tls.certificate_chain}" if tls.private_key and tls.certificate_chain else None
    return TlsSettings(
        certificate_path=tls.keystore_location,
        certificate_and_key=in_line,
        key_password=tls.key_password,
        authorities_path=tls.truststore_location,
        authorities=tls.trusted_certificates,
        client_auth=ClientAuth(tls.client_auth),
        verify_hostname=tls.check_hostname,
        protocols=tls.enabled_protocols,
        cipher_suites=tls.cipher_suites,
    )


class TlsContexts:
    """Creates one `ssl` context for each settings and side (accepting or dialling), and again when a file changes."""

    def __init__(self) -> None:
        self._contexts: dict[tuple[TlsSettings, bool], tuple[object, ssl.SSLContext]] = {}
        self._expiries: dict[TlsSettings, float] = {}

    def server(self, settings: TlsSettings) -> ssl.SSLContext:
        return self._context(settings, server=True)

    def certificate_expiry_s(self, settings: TlsSettings) -> float:
        """Return the earliest expiry of the server's certificates in the present files, in seconds since 1970."""
        self.server(settings)
        return self._expiries[settings]

    def client(self, settings: TlsSettings) -> ssl.SSLContext:
        return self._context(settings, server=False)

    def _context(self, settings: TlsSettings, *, server: bool) -> ssl.SSLContext:
        stamp = _stamp(settings)
        known = self._contexts.get((settings, server))
        if known is not None and known[0] == stamp:
            return known[1]
        try:
            context = _server_context(settings) if server else _client_context(settings)
            if server:
                self._expiries[settings] = _certificates_expiry_s(settings)
        except (TlsConfigError, OSError):
            if known is None:
                raise
            return known[1]  # files that are being replaced: continue with the last valid ones
        self._contexts[settings, server] = (stamp, context)
        return context


def _stamp(settings: TlsSettings) -> object:
    """Return a value that changes when the files change."""
    paths = (settings.certificate_path, settings.key_path, settings.authorities_path)
    stamps = []
    for path in paths:
        try:
            stamps.append(os.stat(path).st_mtime_ns if path is not None else None)
        except OSError:
            stamps.append(-1)
    return tuple(stamps)


def _server_context(settings: TlsSettings) -> ssl.SSLContext:
    if settings.certificate_path is None and settings.certificate_and_key is None:
        raise TlsConfigError("a TLS listener needs a certificate: set ssl.keystore.location to a PEM file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, settings)
    if settings.client_auth is not ClientAuth.NONE:
        required = settings.client_auth is ClientAuth.REQUIRED
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    return context


def _certificates_expiry_s(settings: TlsSettings) -> float:
    from kraft.runtime.certificate import expiry_s  # only servers with TLS need it

    if settings.certificate_path is None:
        return expiry_s(settings.certificate_and_key or "")
    with open(settings.certificate_path, encoding="ascii", errors="replace") as source:
        return expiry_s(source.read())


def _client_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.verify_peer and settings.verify_hostname
    if not settings.verify_peer:
        context.verify_mode = ssl.CERT_NONE
    _load(context, settings)
    if settings.authorities_path is None and settings.authorities is None and settings.verify_peer:
        context.load_default_certs()
    return context


def _load(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.minimum_version = _VERSIONS[min(settings.protocols)]
    context.maximum_version = _VERSIONS[max(settings.protocols)]
    if settings.cipher_suites:
        _set_ciphers(context, settings.cipher_suites)
    if settings.certificate_path is not None:
        _require_pem(settings.certificate_path)
        _load_certificate(context, settings.certificate_path, settings, name=settings.certificate_path)
    elif settings.certificate_and_key is not None:
        with _as_file(settings.certificate_and_key) as path:
            _load_certificate(context, path, settings, name="ssl.keystore.key and ssl.keystore.certificate.chain")
    if settings.authorities_path is not None:
        _require_pem(settings.authorities_path)
    if settings.authorities_path is not None or settings.authorities is not None:
        try:
            context.load_verify_locations(settings.authorities_path, cadata=settings.authorities)
        except ssl.SSLError as error:
            name = settings.authorities_path or "ssl.truststore.certificates"
            raise TlsConfigError(f"{name}: no authorities in it ({error.reason or error})") from error


def _set_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    try:
        context.set_ciphers(":".join(suites))
    except ssl.SSLError as error:
        raise TlsConfigError(f"ssl.cipher.suites: OpenSSL knows none of {', '.join(suites)}") from error


def _load_certificate(context: ssl.SSLContext, path: str, settings: TlsSettings, *, name: str) -> None:
    try:
        context.load_cert_chain(path, settings.key_path, settings.key_password or "")
    except ssl.SSLError as error:
        raise TlsConfigError(f"{name}: certificate and key do not load ({error.reason or error})") from error


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Provide PEM text as a path, the only form in which `ssl` accepts a key; only this process can read it."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as draft:
        draft.write(text)
        draft.flush()
        yield draft.name


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


_ATTRIBUTES = MappingProxyType(
    {
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
)


def distinguished_name(certificate: object) -> str | None:
    """Return the subject of `ssl`'s parsed certificate in the form of RFC 2253 (last part first); None if there is
    none."""
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
