"""The demo: the main feature on real processes, printed for a new user."""
