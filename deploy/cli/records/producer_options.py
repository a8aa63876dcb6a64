"""Command-line options shared by the commands that send records."""

from __future__ import annotations

from typing import Annotated

import typer

from kraft.deploy.cli.completing import complete_codec, one_of

AcksOption = Annotated[str | None, typer.Option(help="all, 1 or 0. [all]", autocompletion=one_of("all", "1", "0"))]
CompressionOption = Annotated[
    str | None,
    typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd. [none]", autocompletion=complete_codec),
]
