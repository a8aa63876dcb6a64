"""Synchronous: Fetch from request to answer: sessions, reading, and parked fetches. May import kraft.broker.logs and
below."""
