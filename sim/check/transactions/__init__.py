"""Pure: the checks of transactions, also of the whole history of a run. It may import `sim/check` only."""
