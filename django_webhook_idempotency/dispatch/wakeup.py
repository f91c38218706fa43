"""Wake a worker when an event is stored: PostgreSQL rings, everywhere else the worker looks."""

from __future__ import annotations

import logging
import random
import re
import secrets
import threading
import time
from copy import deepcopy
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from .. import ledger
from .engines.database import CHANNEL

logger = logging.getLogger("django_webhook_idempotency")

#: Seconds in which the bell has to be heard that is rung as a test.
TEST_TIME = 3.0
#: Seconds between two tries to listen: the first and the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
#: Seconds after which to try again where listening is not possible.
RETRY_AFTER = 600.0
#: Seconds between two proofs that the connection is still there.
PROOF = 60.0
#: Seconds that the end of the thread may take.
LISTEN = 1.0
#: The first psycopg whose `notifies` takes a timeout.
_PSYCOPG = (3, 2)


class Bell:
    """What a sleeping worker waits for."""

    def __init__(self) -> None:
        #: Whether the database rings when an event is stored, so that there is less to look for.
        self.is_wired = False
        self._rung = threading.Event()

    def ring(self) -> None:
        """Wake whoever waits, or whoever waits next."""
        self._rung.set()

    def silence(self) -> None:
        """Forget what has rung, before a look that will see it."""
        self._rung.clear()

    def wait(self, seconds: float) -> bool:
        """Sleep until it rings; False if it has not by then."""
        return self._rung.wait(seconds)


class NotHeard(Exception):
    """The bell was rung and not heard: a pooler that gives connections to others, for one."""


class Listener(threading.Thread):
    """Rings the bell when PostgreSQL says that an event was stored.

    Listens on a connection of its own, which no pool knows of. Where that is not possible it does
    nothing, and the worker looks by itself.
    """

    def __init__(self, bell: Bell) -> None:
        super().__init__(name="webhook-listener", daemon=True)
        self.bell = bell
        self._stopping = threading.Event()

    @staticmethod
    def is_possible() -> bool:
        """Whether the database and its driver can."""
        connection: Any = connections[ledger.alias()]
        if connection.vendor != "postgresql":
            return False
        numbers = re.match(r"(\d+)\.(\d+)", connection.Database.__version__)
        return numbers is not None and tuple(map(int, numbers.groups())) >= _PSYCOPG

    def stop(self) -> None:
        """End within a second or so."""
        self._stopping.set()

    def run(self) -> None:
        """Listen, again after every fault."""
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                self._listen()
            except NotHeard:
                logger.info("webhook worker cannot listen on this connection, it looks instead")
                self._stopping.wait(RETRY_AFTER)
            except Exception as error:
                logger.info("webhook worker stopped listening: %s", type(error).__name__)
                pause = FIRST_PAUSE if self.bell.is_wired else min(pause * 2, LONGEST_PAUSE)
                self.bell.is_wired = False
                self._stopping.wait(pause * random.uniform(0.5, 1))  # noqa: S311
        self.bell.is_wired = False

    def _listen(self) -> None:
        """Ring the bell until the connection breaks. Raises NotHeard, or the driver's error."""
        ears = own_connection()
        try:
            ears.connect()
            raw: Any = ears.connection
            raw.execute(f"LISTEN {CHANNEL}")
            self._test(raw)
            self.bell.is_wired = True
            # What was stored before is seen by a look.
            self.bell.ring()
            proved = time.monotonic()
            while not self._stopping.is_set():
                for _ in raw.notifies(timeout=LISTEN, stop_after=1):
                    self.bell.ring()
                if time.monotonic() - proved > PROOF:
                    raw.execute("SELECT 1")
                    # One that came with the answer was not given to us.
                    self.bell.ring()
                    proved = time.monotonic()
        finally:
            ears.close()

    def _test(self, raw: Any) -> None:
        """Ring from another connection and wait until it is heard. Raises NotHeard."""
        word = secrets.token_hex(8)
        hand = own_connection()
        try:
            with hand.cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, word])
        finally:
            hand.close()
        deadline = time.monotonic() + TEST_TIME
        while (left := deadline - time.monotonic()) > 0:
            for heard in raw.notifies(timeout=left, stop_after=1):
                if heard.payload == word:
                    return
        raise NotHeard


def own_connection() -> BaseDatabaseWrapper:
    """A connection to the ledger's database outside of Django's own and of any pool."""
    connection = connections[ledger.alias()]
    settings = deepcopy(connection.settings_dict)
    settings["OPTIONS"].pop("pool", None)
    return type(connection)(settings, connection.alias)
