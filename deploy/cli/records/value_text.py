"""Conversion between typed text and bytes: records are bytes, command lines are text.

Python represents bytes of the command line that are not UTF-8 as lone surrogates. The functions here turn surrogates
into the original bytes again.
"""

from __future__ import annotations

import os


def typed_bytes(text: str) -> bytes:
    """Return the bytes that the user typed."""
    return os.fsencode(text)


def searchable(data: bytes) -> str:
    """Return data as the text that regular expressions are matched against: UTF-8 as its characters, other data as one
    character per byte."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")
