"""Synchronous: a hosted replica: its log, its role, who waits for it, and where it is stored. May import
kraft.broker.serving and kraft.broker.replica, and everything below kraft.broker."""
