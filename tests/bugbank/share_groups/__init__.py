"""The mutations of share groups, and their schedules."""
