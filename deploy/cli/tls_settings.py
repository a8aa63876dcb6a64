"""Convert a client's `security.protocol` and `ssl.` settings to our TLS settings.

Stores are PEM, as text or in files.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft.deploy.cli.output import EXIT_USAGE, CommandFailed
from kraft.runtime import TlsSettings

PROTOCOLS = ("PLAINTEXT", "SSL")
_PREFIXES = ("ssl.", "sasl.", "security.")


def is_connection_setting(name: str) -> bool:
    """Whether a setting concerns the connection only, not what a producer or consumer does."""
    return name.startswith(_PREFIXES)


def client_tls(settings: Mapping[str, str]) -> TlsSettings | None:
    """Return the TLS settings; None for plaintext. Raise CommandFailed for settings that are not supported."""
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise CommandFailed(
            f"security.protocol={protocol}: this client speaks {' and '.join(PROTOCOLS)}, SASL not yet", code=EXIT_USAGE
        )
    if protocol == "PLAINTEXT":
        return None
    for store in ("ssl.truststore", "ssl.keystore"):
        kind = settings.get(f"{store}.type", "PEM")
        if kind.upper() != "PEM":
            raise CommandFailed(
                f"{store}.type={kind}: stores are PEM here (keytool -importkeystore makes PKCS12 of JKS, and "
                "openssl pkcs12 -in STORE -out FILE.pem -nodes makes PEM of that)",
                code=EXIT_USAGE,
            )
    chain, key = settings.get("ssl.keystore.certificate.chain"), settings.get("ssl.keystore.key")
    return TlsSettings(
        certificate_path=settings.get("ssl.keystore.location"),
        certificate_and_key=f"{key}\n{chain}" if chain and key else None,
        key_password=settings.get("ssl.key.password"),
        authorities_path=settings.get("ssl.truststore.location"),
        authorities=settings.get("ssl.truststore.certificates"),
        verify_hostname=settings.get("ssl.endpoint.identification.algorithm", "https") != "",
    )
