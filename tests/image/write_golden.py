"""Write a release's golden file: `python -m tests.image.write_golden 0.1.0`. Files that exist are never changed."""

from __future__ import annotations

import json
import sys

from kraft.image import encode_event
from tests.image.test_events import EXAMPLES, GOLDEN, described


def main(release: str) -> None:
    path = GOLDEN / f"{release}.jsonl"
    if path.exists():
        raise SystemExit(f"{path} exists: what a release wrote does not change")
    GOLDEN.mkdir(exist_ok=True)
    lines = [json.dumps({"bytes": encode_event(one).hex(), "value": described(one)}) for one in EXAMPLES]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
