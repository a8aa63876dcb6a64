"""Read a certificate's expiry. `ssl` reports it for a peer's certificate, but not for the certificates that a context
loads.

Source: RFC 5280 (4.1, the fields of a certificate; 4.1.2.5, its two forms of time).
"""

from __future__ import annotations

import binascii
import math
import re
from datetime import UTC, datetime

_PEM = re.compile("-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.+?)-----END ", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17


def expiry_s(pem: str) -> float:
    """Return the earliest expiry of the certificates in a PEM text, in seconds since 1970. Return infinity if there is
    no certificate. Return NaN if a certificate has a form that is not supported here, although OpenSSL may accept it.
    """
    try:
        return min((_expiry_s(binascii.a2b_base64(text)) for text in _PEM.findall(pem)), default=math.inf)
    except (ValueError, IndexError):
        return math.nan


def _expiry_s(der: bytes) -> float:
    _, at, _ = _element(der, 0)  # the certificate
    _, at, _ = _element(der, at)  # the signed part
    tag, _, end = _element(der, at)
    if tag == _VERSION:
        at = end
    for _ in ("serial number", "signature", "issuer"):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at)  # validity
    _, _, at = _element(der, at)  # its start
    tag, start, end = _element(der, at)
    text = der[start:end].decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Return the tag of the DER element at `at`, and the start and end of its content."""
    length = der[at + 1]
    start = at + 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[at + 2 : start])
    return der[at], start, start + length
