"""Between what is typed and what a record holds: records are bytes, command lines are text.

Python gives bytes of the command line that are no text as lone surrogates; here they become those bytes again.
"""

from __future__ import annotations

import os


def typed_bytes(text: str) -> bytes:
    """The bytes that were typed."""
    return os.fsencode(text)


def searchable(data: bytes) -> str:
    """What an expression is matched against: UTF-8 as its characters, anything else as a character for each byte."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
