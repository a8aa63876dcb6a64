"""Generate the page docs/spark-options.md from the list of options."""

from __future__ import annotations

from types import MappingProxyType

from kraft.client.spark.options.kafka_names import REFUSED, SASL, SASL_REASON, WITHOUT_EFFECT
from kraft.client.spark.options.table import CHAPTERS, OPTIONS, Kind, Option

_HEAD = """# Options of the format `kraft`

Names are those of Spark's own Kafka connector where it has the option; "(pykraft)" marks options that it does not
have. Upper and lower case make no difference. An unknown option, and one without a meaning for this read or write, is
an error; the message names the nearest option. `batch` and `stream` read topics, `table` reads a table of the cluster,
`sink` writes to topics.

This page is generated: `make docs`.
"""
_SHORT = MappingProxyType({Kind.BATCH: "batch", Kind.STREAM: "stream", Kind.TABLE: "table", Kind.SINK: "sink"})


def render_options() -> str:
    """Return the page docs/spark-options.md as Markdown."""
    parts = [_HEAD]
    for title, options in CHAPTERS:
        parts += [f"## {title}\n", "| option | for | default | meaning |", "|---|---|---|---|"]
        parts += [_row(option) for option in options]
        parts.append("")
    parts += ["## Rejected settings of Kafka's clients\n", "| setting | what to do |", "|---|---|"]
    parts += [f"| `kafka.{name}` | {why} |" for name, why in sorted(REFUSED.items())]
    parts += [f"| `kafka.{SASL}*` | {SASL_REASON} |", ""]
    own = {option.name.removeprefix("kafka.") for option in OPTIONS}
    listed = ", ".join(f"`{name}`" for name in sorted(WITHOUT_EFFECT - own))
    parts += ["## Settings without effect\n", f"Accepted as `kafka.<name>` and listed once in the log: {listed}.", ""]
    return "\n".join(parts)


def _row(option: Option) -> str:
    kinds = "all" if option.kinds == set(Kind) else ", ".join(_SHORT[kind] for kind in Kind if kind in option.kinds)
    default = f"`{option.default}`" if option.default and " " not in option.default else option.default
    cells = (f"`{option.name}`", kinds, default, option.meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
