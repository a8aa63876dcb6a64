"""`python -m tests.docs`: write the generated pages and check the links."""

from __future__ import annotations

import sys

from tests.docs.links import broken_links
from tests.docs.pages import write_pages


def main() -> int:
    for name in write_pages():
        print(f"wrote {name}")
    broken = list(broken_links())
    for line in broken:
        print(f"broken link in {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
