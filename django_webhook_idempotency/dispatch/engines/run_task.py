"""What a worker of Django's tasks calls. Imported only where Django, or the backport, has them."""

from __future__ import annotations

try:
    from django.tasks import task
except ImportError:  # Django 5.2
    from django_tasks import task  # type: ignore[no-redef]

from ...conf import conf
from ..serving import serve


@task(backend=conf.tasks_backend, queue_name=conf.tasks_queue)
def run(pk: int) -> None:
    """Run one due event; if it has to be tried again and the backend can wait, enqueue it for then.

    Where the backend cannot, the event waits for the next worker or sweep that looks.
    """
    event = serve(pk)
    if event is None or event.next_attempt_at is None or not run.get_backend().supports_defer:
        return
    run.using(run_after=event.next_attempt_at).enqueue(event.pk)
