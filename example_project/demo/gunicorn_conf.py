"""How gunicorn runs the shop in the demo."""

from __future__ import annotations

worker_class = "gthread"
threads = 4
# Longer than the sender keeps a connection, so that none is closed just when it is used again.
keepalive = 30
graceful_timeout = 2
# A worker that takes the place of a killed one is there at once.
preload_app = True
# A second gunicorn of the same user would want the same file. Before version 25 there is none,
# and the name is ignored.
control_socket_disable = True
