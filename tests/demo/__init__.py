"""The demo: a chaos scenario on real processes, with output for a new user."""
