"""Run the handlers of an event, now or later, under one claim."""
