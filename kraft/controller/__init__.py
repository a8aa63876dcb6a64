"""Async: the controller process: the active controller's command queue, its listener and its timers. May import
kraft.quorum and everything below it, never kraft.runtime.
"""
