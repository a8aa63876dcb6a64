"""The demo: the main job on real processes, printed for a first user."""
