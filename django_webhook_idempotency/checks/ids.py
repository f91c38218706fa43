"""The ids of all checks. One that is no longer used stays here, reserved."""

from __future__ import annotations

from collections.abc import Mapping

#: Id to what it reports; E is an error, W a warning. The next free number is 045.
IDS: Mapping[str, str] = {
    "webhooks.E001": "WEBHOOK_IDEMPOTENCY, its PROVIDERS or a provider's entry is no dictionary.",
    "webhooks.E002": "A provider is not known, or its class cannot be imported or is none.",
    "webhooks.E003": "An option does not exist.",
    "webhooks.E004": "An option has a value that does not fit.",
    "webhooks.E005": "A provider has no live secret.",
    "webhooks.E006": "An entry of SECRETS is empty, or neither text nor a dictionary of SECRET "
    "and UNTIL.",
    "webhooks.E007": "A secret does not have the form that its provider gives out.",
    "webhooks.W008": "A secret has white space around it.",
    "webhooks.E009": "SECRETS is neither a list nor the path of a function that returns one.",
    "webhooks.E010": 'STORE is "redis", and the [redis] extra is not installed.',
    "webhooks.W011": "The Redis of the lease store cannot be reached.",
    "webhooks.E012": "The Redis of the lease store may drop leases: its eviction policy is not "
    "noeviction.",
    "webhooks.E013": "A secret is an Ed25519 key, and the [crypto] extra is not installed.",
    "webhooks.E014": "STORE cannot be imported or made, or lacks something a lease store needs.",
    "webhooks.E015": "STORE keeps leases in the memory of one process.",
    "webhooks.E016": "Reserved: it said that there was no queue yet.",
    "webhooks.E017": "Reserved: it said that there was no queue yet.",
    "webhooks.E018": "Keys are kept for a shorter time than the provider may send an event again.",
    "webhooks.W019": "Keys are kept for a shorter time than the bodies or deliveries that go with "
    "them.",
    "webhooks.W020": "DATA_UPLOAD_MAX_MEMORY_SIZE is smaller than a provider's MAX_BODY.",
    "webhooks.E021": "The ledger's database does not exist or is of a kind that is not supported.",
    "webhooks.W022": "MySQL's or MariaDB's max_allowed_packet is too small for a provider's "
    "MAX_BODY (only with --database).",
    "webhooks.W023": "USE_TZ is off in a time zone that puts its clocks back and forth.",
    "webhooks.E024": "Something wraps a webhook view and hides its exemption from CSRF.",
    "webhooks.E025": "Something wraps a webhook view and hides its exemption from ATOMIC_REQUESTS.",
    "webhooks.E026": "@idempotent_webhook is on a method of a class-based view whose exemptions "
    "Django does not see.",
    "webhooks.E027": "@api_view is above @idempotent_webhook while ATOMIC_REQUESTS is on.",
    "webhooks.W028": "A handler is registered for a provider that receives nothing.",
    "webhooks.E029": "A provider's options contradict each other.",
    "webhooks.W030": "The ledger is in another database than the rest of the project.",
    "webhooks.E031": 'QUEUE is "celery", and the [celery] extra is not installed.',
    "webhooks.E032": 'QUEUE is "celery", and the project has no Celery app, or several.',
    "webhooks.W033": 'QUEUE is "celery", and nothing sweeps.',
    "webhooks.E034": 'QUEUE is "tasks", and neither Django nor the [tasks] extra has tasks.',
    "webhooks.E035": "TASKS_BACKEND is not in TASKS, or does not take tasks for TASKS_QUEUE.",
    "webhooks.W036": 'QUEUE is "tasks", and its backend is no queue.',
    "webhooks.E037": "QUEUE cannot be imported or made, or lacks something a queue engine needs.",
    "webhooks.E038": "ENQUEUE_TIMEOUT is no number of seconds above zero.",
    "webhooks.W039": "A queued view class with handle() cannot be imported by a worker.",
    "webhooks.E040": "A handler has an ordering_key where it runs in the request without a "
    "transaction.",
    "webhooks.W041": "The database may forget in a crash what it committed last (only with "
    "--database).",
    "webhooks.E042": "RECOVERY cannot be used: something in it does not exist or does not fit, or "
    "an extra is not installed.",
    "webhooks.W043": "Refused deliveries are to be kept for longer than RETENTION leaves them.",
}
