"""Signals, sent after the commit that they report and never able to undo it.

All but the last carry `sender` (the event's class), `event` and `delivery` (a `DeliveryReport`;
None when a worker sends it, after the delivery was answered).
"""

from __future__ import annotations

from django.dispatch import Signal

#: A verified delivery was identified, whatever becomes of it.
webhook_received = Signal()
#: Every handler of the event has succeeded.
webhook_processed = Signal()
#: A copy of a finished or stored event; `delivery.conflict` when its body differs.
webhook_duplicate = Signal()
#: A run failed; carries `error`, the exception.
webhook_failed = Signal()
#: The event will not be tried again by itself; carries `error`.
webhook_dead = Signal()
#: A source was not heard of for longer than its EXPECT_EVERY; sent once in each silence, by a
#: worker or the sweep. Carries `provider` (its slug), `since`, `expected_every` and `heard`, which
#: is False if it was never heard of.
webhook_source_silent = Signal()
