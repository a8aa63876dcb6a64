"""Commands that run the applications of docs/examples; the applications are built if necessary."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
_CLASSES = f"{EXAMPLES / 'java/target/classes'}:{EXAMPLES / 'java/target/dependency'}/*"

COMMANDS = {
    "python": (sys.executable, str(EXAMPLES / "python/app.py")),
    "java": ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp", _CLASSES, "shop.Invoices"),
    "node": ("node", str(EXAMPLES / "node/app.js")),
}
