"""Async: what every request needs beside its handler: sessions, gates, throttling, purgatory, limits, metrics. May
import everything below kraft.broker, and its pure rooms; the other rooms for types alone."""
