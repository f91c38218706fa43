import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="LedgerEntry",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("provider", models.CharField(max_length=64)),
                ("event_id", models.CharField(max_length=255)),
                ("event_type", models.CharField(blank=True, max_length=255)),
                ("amount", models.BigIntegerField(default=0)),
                ("currency", models.CharField(blank=True, max_length=3)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now)),
            ],
            options={
                "verbose_name_plural": "ledger entries",
            },
        ),
    ]
