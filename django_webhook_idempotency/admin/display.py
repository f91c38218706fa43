"""How statuses, outcomes and durations read: in words first, in colour as well."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from ..enums import EventStatus, Outcome
from .links import with_link

#: What stands where there is nothing to show.
NOTHING = "–"  # noqa: RUF001
#: A duration over this part of the deadline is called close to it.
CLOSE = 0.8

_TONES: Mapping[str, str] = {
    EventStatus.PENDING: "waiting",
    EventStatus.PROCESSING: "waiting",
    EventStatus.PROCESSED: "good",
    EventStatus.IGNORED: "quiet",
    EventStatus.SUPERSEDED: "quiet",
    EventStatus.FAILED: "bad",
    EventStatus.DEAD: "bad",
    Outcome.ACCEPTED: "good",
    Outcome.DUPLICATE: "quiet",
    Outcome.IN_PROGRESS: "waiting",
    Outcome.HANDSHAKE: "quiet",
    Outcome.REJECTED: "bad",
    Outcome.MALFORMED: "bad",
    Outcome.TOO_LARGE: "bad",
}


def badge(text: str, tone: str) -> SafeString:
    """A word on a ground of the tone "good", "quiet", "waiting" or "bad"."""
    return format_html('<span class="webhook-badge webhook-{}">{}</span>', tone, text)


def two_lines(first: str, second: str = "", link: str = "") -> SafeString:
    """A cell of two lines, the second in small; what is too long for it is whole in the title."""
    line = format_html('<span class="webhook-line" title="{0}">{0}</span>', first)
    if link:
        line = with_link(link, line)
    if not second:
        return line
    return format_html(
        '{0}<span class="webhook-line webhook-small" title="{1}">{1}</span>', line, second
    )


def above(first: str, second: str) -> SafeString:
    """A cell with a small line under the first, whole however long it is."""
    return format_html('{}<div class="webhook-small">{}</div>', first, second)


def choice_badge(value: str, label: str) -> SafeString:
    """The badge of an event's status or a delivery's outcome."""
    return badge(label, _TONES.get(value, "quiet"))


def seconds_text(seconds: float) -> str:
    """A time span in milliseconds under a second, else in seconds."""
    milliseconds = seconds * 1000
    if 0 < milliseconds < 10:
        return gettext("%(number)s ms") % {"number": formats.number_format(milliseconds, 1)}
    if seconds < 1:
        return gettext("%(number)s ms") % {"number": formats.number_format(round(milliseconds))}
    places = 0 if seconds == round(seconds) else 2
    return gettext("%(number)s s") % {"number": formats.number_format(seconds, places)}


def duration_text(duration: timedelta, deadline: float | None) -> str | SafeString:
    """A duration against the provider's deadline, marked in words if it was close or too long."""
    taken = duration.total_seconds()
    if not deadline:
        return seconds_text(taken)
    text = gettext("%(duration)s of %(deadline)s") % {
        "duration": seconds_text(taken),
        "deadline": seconds_text(deadline),
    }
    if taken > deadline:
        return format_html("{} {}", text, badge(gettext("too late"), "bad"))
    if taken > deadline * CLOSE:
        return format_html("{} {}", text, badge(gettext("near deadline"), "waiting"))
    return text


def time_text(moment: datetime | None, *, exact: bool = False) -> str | SafeString:
    """A time in the viewer's zone to the second, or `exact` to the millisecond with its zone.

    The same in every language: it is read beside logs.
    """
    if moment is None:
        return NOTHING
    local = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    time = f"{local:%H:%M:%S}"
    if exact:
        time += f".{local.microsecond // 1000:03d} {local:%Z}".rstrip()
    return format_html(
        '<time datetime="{}"><span class="webhook-whole">{}</span> '
        '<span class="webhook-whole">{}</span></time>',
        local.isoformat(),
        f"{local:%Y-%m-%d}",
        time,
    )


def retry_text(number: int | None, reason: str) -> str:
    """What the provider said of its retry, such as `retry 2 · http_timeout`; empty if nothing."""
    said = " · ".join(filter(None, ["" if number is None else str(number), reason]))
    return gettext("retry %(number_and_reason)s") % {"number_and_reason": said} if said else ""
