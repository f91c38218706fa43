"""How gunicorn runs here; it skips the names that its version doesn't know."""

from __future__ import annotations

worker_class = "sync"
preload_app = True  # a killed worker is replaced in milliseconds
timeout = 120
graceful_timeout = 3
loglevel = "warning"
control_socket_disable = True
