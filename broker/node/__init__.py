"""Async: request dispatch, sessions, gates, fetchers, purgatory and lifecycle of a broker. May import everything below
kraft.broker and its siblings."""
