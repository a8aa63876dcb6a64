"""Async: what happens to the logs of a broker beside requests: opening, syncing, retention, removal, moves, damage.
May import kraft.broker.partition and below."""
