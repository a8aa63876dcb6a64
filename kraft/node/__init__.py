"""Async: the controller process, and the metadata observer that brokers and tools embed. May import everything below
it, never kraft.runtime."""
