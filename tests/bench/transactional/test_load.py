"""What the benchmark of transactions makes of its program's output."""

import pytest

from tests.bench.bare import Bulk
from tests.bench.transactional.load import Written, parse


def test_a_transactions_benchmark_counts_steady_records_for_the_rate_and_all_records_for_the_cpu_time() -> None:
    commits = "".join(f"commit {milliseconds}.0\n" for milliseconds in (4, 1, 3, 2))
    text = f"[2026-11-27] WARN a line of the log\n\nsent 3000\nsteady 2000 0.5\n{commits}"
    assert parse(text, size=1000, cpu_s=0.3) == Written(Bulk(4.0, 100.0), 3.0, 4.0)


def test_a_transactions_benchmark_with_a_single_commit_is_refused() -> None:
    with pytest.raises(RuntimeError, match="too few transactions"):
        parse("sent 1000\nsteady 0 0.0\ncommit 5.0\n", size=1000, cpu_s=0.3)
