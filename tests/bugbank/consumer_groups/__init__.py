"""Mutations of consumer groups of the next-generation protocol, and their schedules."""
