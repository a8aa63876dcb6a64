"""Pure: decisions about partitions: in-sync sets, elections, recovery, reassignment."""
