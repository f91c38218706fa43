"""Receive webhooks so that each event takes effect exactly once and none is lost."""

__version__ = "0.1.0.dev0"
