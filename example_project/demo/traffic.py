"""What the providers are going to send, in which order, and what at the same moment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from random import Random

from .events import PROVIDERS, Event, make_event

FEWEST_COPIES = 2
MOST_COPIES = 5
#: How long the handler of an event sleeps in whose middle a worker is killed, in milliseconds.
SLEEP = 1_000


class Trouble(StrEnum):
    """What happens to an event on its way."""

    #: Its copies arrive one by one, between those of others.
    SHUFFLED = "shuffled"
    #: Its copies arrive at the same moment.
    RACE = "race"
    #: Its handler fails the first time.
    FAILURE = "failure"
    #: The worker that handles it is killed.
    KILL = "kill"


@dataclass(frozen=True)
class Volley:
    """Deliveries of one event that are sent at the same moment."""

    event: Event
    copies: int
    trouble: Trouble


def plan(events: int, random: Random) -> list[Volley]:
    """Deliveries of `events` events in a random order, every trouble with every provider.

    The kills are spread evenly, so that each meets others at work.
    """
    volleys: list[Volley] = []
    kills: list[Volley] = []
    for number in range(events):
        provider = PROVIDERS[number % len(PROVIDERS)]
        trouble = _trouble(number // len(PROVIDERS))
        event = make_event(provider, random, _type(trouble))
        copies = random.randint(FEWEST_COPIES, MOST_COPIES)
        if trouble == Trouble.KILL:
            kills.append(Volley(event, copies, trouble))
        elif trouble == Trouble.RACE:
            volleys.append(Volley(event, copies, trouble))
        else:
            volleys += [Volley(event, 1, trouble)] * copies
    random.shuffle(volleys)
    gap = len(volleys) // (len(kills) + 1)
    for place, kill in enumerate(kills):
        volleys.insert((place + 1) * gap + place, kill)
    return volleys


def _trouble(turn: int) -> Trouble:
    """One kill for each provider, then a failure, two races and four shuffled in turn."""
    if turn == 0:
        return Trouble.KILL
    cycle = (Trouble.FAILURE, *[Trouble.RACE] * 2, *[Trouble.SHUFFLED] * 4)
    return cycle[(turn - 1) % len(cycle)]


def _type(trouble: Trouble) -> str:
    return {Trouble.FAILURE: "test.fail", Trouble.KILL: f"test.sleep.{SLEEP}"}.get(trouble, "")


def events_of(volleys: Iterable[Volley]) -> dict[str, list[Event]]:
    """The events of a plan by provider, each once."""
    events = {volley.event.event_id: volley.event for volley in volleys}.values()
    ordered = sorted(events, key=lambda event: PROVIDERS.index(event.provider))
    return {key: list(group) for key, group in groupby(ordered, lambda event: event.provider)}
