"""Attempts to break exactly-once: a real server, many workers, kills, cuts and races."""
