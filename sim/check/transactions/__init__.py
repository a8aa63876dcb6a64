"""Pure: the checks of transactions, and the judge of a run's transactions. It may import `sim/check` only."""
