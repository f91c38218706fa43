# The first migration: it is rewritten until 0.1.0 is tagged.

import datetime

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="ExpectedSource",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("provider", models.CharField(max_length=64, unique=True, verbose_name="provider")),
                (
                    "expected_since",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="expected since"
                    ),
                ),
                (
                    "told_of",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="told of silence since"
                    ),
                ),
            ],
            options={
                "verbose_name": "expected source",
                "verbose_name_plural": "expected sources",
            },
        ),
        migrations.CreateModel(
            name="RecoveryCursor",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("source", models.CharField(max_length=255, unique=True, verbose_name="source")),
                ("settled_until", models.DateTimeField(verbose_name="settled until")),
                (
                    "updated_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="updated at"
                    ),
                ),
                (
                    "lease_token",
                    models.CharField(
                        blank=True,
                        default="",
                        editable=False,
                        max_length=32,
                        verbose_name="lease token",
                    ),
                ),
                (
                    "lease_expires_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="lease expires at"),
                ),
            ],
            options={
                "verbose_name": "recovery cursor",
                "verbose_name_plural": "recovery cursors",
            },
        ),
        migrations.CreateModel(
            name="MissingEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "dedupe_key",
                    models.CharField(
                        editable=False, max_length=64, unique=True, verbose_name="dedupe key"
                    ),
                ),
                ("provider", models.CharField(max_length=64, verbose_name="provider")),
                ("source", models.CharField(max_length=255, verbose_name="source")),
                ("scope", models.CharField(blank=True, max_length=255, verbose_name="scope")),
                ("event_id", models.CharField(max_length=255, verbose_name="event id")),
                (
                    "event_type",
                    models.CharField(blank=True, max_length=255, verbose_name="event type"),
                ),
                ("sent_at", models.DateTimeField(verbose_name="sent at")),
                (
                    "leaves_at",
                    models.DateTimeField(
                        blank=True, null=True, verbose_name="leaves the window at"
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0, verbose_name="attempts")),
                ("asked_at", models.DateTimeField(blank=True, null=True, verbose_name="asked at")),
                ("given_up", models.BooleanField(default=False, verbose_name="given up")),
            ],
            options={
                "verbose_name": "missing event",
                "verbose_name_plural": "missing events",
                "indexes": [
                    models.Index(fields=["provider", "sent_at"], name="webhook_missing_sent"),
                    models.Index(
                        fields=["source", "given_up", "id"], name="webhook_missing_source"
                    ),
                    models.Index(fields=["leaves_at"], name="webhook_missing_leaves"),
                ],
            },
        ),
        migrations.CreateModel(
            name="OrderingKey",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                (
                    "key",
                    models.CharField(
                        editable=False, max_length=64, unique=True, verbose_name="key"
                    ),
                ),
                ("provider", models.CharField(max_length=64, verbose_name="provider")),
                ("holder", models.BigIntegerField(blank=True, null=True, verbose_name="holder")),
                ("version", models.CharField(blank=True, max_length=255, verbose_name="version")),
                (
                    "updated_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="updated at"
                    ),
                ),
            ],
            options={
                "verbose_name": "ordering key",
                "verbose_name_plural": "ordering keys",
                "indexes": [
                    models.Index(fields=["provider", "updated_at"], name="webhook_ordering_age")
                ],
            },
        ),
        migrations.CreateModel(
            name="QuarantinedDelivery",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("provider", models.CharField(max_length=64, verbose_name="provider")),
                ("scope", models.CharField(blank=True, max_length=255, verbose_name="scope")),
                (
                    "view",
                    models.CharField(
                        blank=True, editable=False, max_length=255, verbose_name="view"
                    ),
                ),
                ("reason", models.CharField(max_length=32, verbose_name="reason")),
                (
                    "sender",
                    models.CharField(
                        blank=True, editable=False, max_length=16, verbose_name="sender"
                    ),
                ),
                (
                    "received_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="received at"
                    ),
                ),
                (
                    "content_type",
                    models.CharField(blank=True, max_length=255, verbose_name="content type"),
                ),
                ("body", models.BinaryField(verbose_name="body")),
                (
                    "signed_headers",
                    models.JSONField(default=dict, editable=False, verbose_name="signed headers"),
                ),
            ],
            options={
                "verbose_name": "quarantined delivery",
                "verbose_name_plural": "quarantined deliveries",
                "permissions": [
                    (
                        "reverify_quarantineddelivery",
                        "Can have a quarantined delivery verified again",
                    )
                ],
                "indexes": [
                    models.Index(
                        fields=["provider", "reason", "id"], name="webhook_quarantine_reason"
                    ),
                    models.Index(
                        fields=["provider", "reason", "sender"], name="webhook_quarantine_sender"
                    ),
                    models.Index(fields=["received_at"], name="webhook_quarantine_received"),
                ],
            },
        ),
        migrations.CreateModel(
            name="SecretUse",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("provider", models.CharField(max_length=64, verbose_name="provider")),
                ("fingerprint", models.CharField(blank=True, max_length=8, verbose_name="secret")),
                (
                    "first_used_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="first used at"
                    ),
                ),
                (
                    "last_used_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="last used at"
                    ),
                ),
            ],
            options={
                "verbose_name": "use of a secret",
                "verbose_name_plural": "uses of secrets",
                "indexes": [
                    models.Index(
                        fields=["provider", "last_used_at"], name="webhook_secret_use_last"
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("provider", "fingerprint"), name="webhook_secret_use_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="WebhookEvent",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("provider", models.CharField(max_length=64, verbose_name="provider")),
                ("scope", models.CharField(blank=True, max_length=255, verbose_name="scope")),
                ("event_id", models.CharField(max_length=255, verbose_name="event id")),
                (
                    "dedupe_key",
                    models.CharField(editable=False, max_length=64, verbose_name="dedupe key"),
                ),
                (
                    "secondary_key",
                    models.CharField(
                        blank=True,
                        editable=False,
                        max_length=64,
                        null=True,
                        verbose_name="secondary key",
                    ),
                ),
                (
                    "content_key",
                    models.CharField(
                        blank=True,
                        editable=False,
                        max_length=64,
                        null=True,
                        verbose_name="content key",
                    ),
                ),
                (
                    "event_type",
                    models.CharField(blank=True, max_length=255, verbose_name="event type"),
                ),
                (
                    "status",
                    models.CharField(
                        choices=[
                            ("pending", "pending"),
                            ("processing", "processing"),
                            ("processed", "processed"),
                            ("ignored", "ignored"),
                            ("superseded", "superseded"),
                            ("failed", "failed"),
                            ("dead", "dead letter"),
                        ],
                        max_length=16,
                        verbose_name="status",
                    ),
                ),
                ("body", models.BinaryField(blank=True, null=True, verbose_name="body")),
                (
                    "body_digest",
                    models.CharField(blank=True, max_length=64, verbose_name="body digest"),
                ),
                (
                    "content_type",
                    models.CharField(blank=True, max_length=255, verbose_name="content type"),
                ),
                (
                    "received_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="received at"
                    ),
                ),
                (
                    "processed_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="processed at"),
                ),
                ("attempts", models.PositiveIntegerField(default=0, verbose_name="attempts")),
                (
                    "forgiven",
                    models.PositiveIntegerField(
                        default=0, editable=False, verbose_name="forgiven attempts"
                    ),
                ),
                (
                    "next_attempt_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="next attempt at"),
                ),
                (
                    "lane",
                    models.CharField(
                        blank=True, editable=False, max_length=64, null=True, verbose_name="lane"
                    ),
                ),
                (
                    "enqueued_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="enqueued at"),
                ),
                (
                    "view",
                    models.CharField(
                        blank=True, editable=False, max_length=255, verbose_name="view"
                    ),
                ),
                (
                    "lease_token",
                    models.CharField(
                        blank=True,
                        default="",
                        editable=False,
                        max_length=32,
                        verbose_name="lease token",
                    ),
                ),
                (
                    "lease_expires_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="lease expires at"),
                ),
                ("last_error", models.TextField(blank=True, verbose_name="last error")),
                (
                    "handled_by",
                    models.CharField(blank=True, max_length=255, verbose_name="handled by"),
                ),
                (
                    "response_status",
                    models.PositiveSmallIntegerField(
                        blank=True, null=True, verbose_name="answered"
                    ),
                ),
                (
                    "response_content_type",
                    models.CharField(
                        blank=True, max_length=255, verbose_name="answered content type"
                    ),
                ),
                (
                    "response_body",
                    models.BinaryField(blank=True, null=True, verbose_name="answered body"),
                ),
            ],
            options={
                "verbose_name": "webhook event",
                "verbose_name_plural": "webhook events",
                "permissions": [("replay_webhookevent", "Can replay webhook event")],
                "indexes": [
                    models.Index(fields=["content_key"], name="webhook_event_content"),
                    models.Index(fields=["event_id"], name="webhook_event_event_id"),
                    models.Index(fields=["status", "id"], name="webhook_event_status"),
                    models.Index(fields=["provider", "id"], name="webhook_event_provider"),
                    models.Index(fields=["received_at"], name="webhook_event_received"),
                    models.Index(
                        fields=["lane", "scope", "next_attempt_at"], name="webhook_event_lane"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("dedupe_key",), name="webhook_event_dedupe_key"
                    ),
                    models.UniqueConstraint(
                        fields=("secondary_key",), name="webhook_event_secondary_key"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Replay",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("handler", models.CharField(blank=True, max_length=255, verbose_name="handler")),
                ("after", models.PositiveIntegerField(default=0, verbose_name="after run")),
                ("requested_by", models.CharField(max_length=150, verbose_name="requested by")),
                ("reason", models.CharField(max_length=255, verbose_name="why")),
                (
                    "requested_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="requested at"
                    ),
                ),
                ("status_before", models.CharField(max_length=16, verbose_name="status before")),
                (
                    "others_at",
                    models.DateTimeField(
                        blank=True, editable=False, null=True, verbose_name="others due at"
                    ),
                ),
                (
                    "others_forgiven",
                    models.PositiveIntegerField(
                        default=0, editable=False, verbose_name="forgiven the others"
                    ),
                ),
                (
                    "event",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="replays",
                        to="django_webhook_idempotency.webhookevent",
                        verbose_name="event",
                    ),
                ),
            ],
            options={
                "verbose_name": "replay",
                "verbose_name_plural": "replays",
            },
        ),
        migrations.CreateModel(
            name="HandlerRun",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("handler", models.CharField(max_length=255, verbose_name="handler")),
                ("number", models.PositiveIntegerField(verbose_name="number")),
                ("started_at", models.DateTimeField(verbose_name="started at")),
                (
                    "finished_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="finished at"),
                ),
                ("error_class", models.CharField(blank=True, max_length=255, verbose_name="error")),
                ("error_message", models.TextField(blank=True, verbose_name="error message")),
                ("traceback", models.TextField(blank=True, verbose_name="traceback")),
                (
                    "event",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="runs",
                        to="django_webhook_idempotency.webhookevent",
                        verbose_name="event",
                    ),
                ),
            ],
            options={
                "verbose_name": "handler run",
                "verbose_name_plural": "handler runs",
            },
        ),
        migrations.CreateModel(
            name="WebhookDelivery",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("provider", models.CharField(max_length=64, verbose_name="provider")),
                (
                    "received_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="received at"
                    ),
                ),
                (
                    "origin",
                    models.CharField(
                        choices=[
                            ("request", "request"),
                            ("recovered", "recovered"),
                            ("quarantine", "quarantine"),
                        ],
                        default="request",
                        max_length=16,
                        verbose_name="origin",
                    ),
                ),
                (
                    "outcome",
                    models.CharField(
                        choices=[
                            ("processed", "processed"),
                            ("accepted", "accepted"),
                            ("duplicate", "duplicate"),
                            ("in_progress", "in progress"),
                            ("ignored", "ignored"),
                            ("superseded", "superseded"),
                            ("handshake", "handshake"),
                            ("rejected", "rejected"),
                            ("malformed", "malformed"),
                            ("too_large", "too large"),
                            ("failed", "failed"),
                        ],
                        max_length=16,
                        verbose_name="outcome",
                    ),
                ),
                ("status", models.PositiveSmallIntegerField(verbose_name="answered")),
                (
                    "duration",
                    models.DurationField(default=datetime.timedelta(0), verbose_name="duration"),
                ),
                (
                    "retry_number",
                    models.PositiveSmallIntegerField(
                        blank=True, null=True, verbose_name="retry number"
                    ),
                ),
                (
                    "retry_reason",
                    models.CharField(blank=True, max_length=64, verbose_name="retry reason"),
                ),
                ("headers", models.JSONField(blank=True, default=dict, verbose_name="headers")),
                (
                    "body_digest",
                    models.CharField(blank=True, max_length=64, verbose_name="body digest"),
                ),
                (
                    "secret_fingerprint",
                    models.CharField(blank=True, max_length=8, verbose_name="secret"),
                ),
                ("conflict", models.BooleanField(default=False, verbose_name="body differs")),
                ("note", models.CharField(blank=True, max_length=255, verbose_name="note")),
                (
                    "event",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="django_webhook_idempotency.webhookevent",
                        verbose_name="event",
                    ),
                ),
            ],
            options={
                "verbose_name": "webhook delivery",
                "verbose_name_plural": "webhook deliveries",
                "indexes": [
                    models.Index(fields=["event", "id"], name="webhook_delivery_event"),
                    models.Index(
                        fields=["outcome", "provider", "id"], name="webhook_delivery_outcome"
                    ),
                    models.Index(fields=["provider", "id"], name="webhook_delivery_provider"),
                    models.Index(fields=["received_at"], name="webhook_delivery_received"),
                ],
            },
        ),
        migrations.CreateModel(
            name="HandlerTurn",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("key", models.CharField(editable=False, max_length=64, verbose_name="key")),
                ("waiting", models.BooleanField(default=False, verbose_name="waiting")),
                (
                    "others_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="others rest until"),
                ),
                (
                    "event",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="turns",
                        to="django_webhook_idempotency.webhookevent",
                        verbose_name="event",
                    ),
                ),
            ],
            options={
                "verbose_name": "handler turn",
                "verbose_name_plural": "handler turns",
                "constraints": [
                    models.UniqueConstraint(fields=("key", "event"), name="webhook_turn_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="HandlerStep",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("handler", models.CharField(max_length=255, verbose_name="handler")),
                ("name", models.CharField(max_length=255, verbose_name="name")),
                ("key", models.CharField(editable=False, max_length=64, verbose_name="key")),
                ("result", models.TextField(blank=True, verbose_name="result")),
                (
                    "finished_at",
                    models.DateTimeField(
                        default=django.utils.timezone.now, verbose_name="finished at"
                    ),
                ),
                (
                    "event",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="steps",
                        to="django_webhook_idempotency.webhookevent",
                        verbose_name="event",
                    ),
                ),
            ],
            options={
                "verbose_name": "handler step",
                "verbose_name_plural": "handler steps",
                "constraints": [
                    models.UniqueConstraint(fields=("event", "key"), name="webhook_step_once")
                ],
            },
        ),
    ]
