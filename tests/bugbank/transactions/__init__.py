"""The mutations of transactions, and their schedules."""
