import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("decisions", "0012_history"),
    ]

    operations = [
        migrations.CreateModel(
            name="Endpoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("kind", models.CharField(choices=[("webhook", "Webhook"), ("slack", "Slack")], max_length=10)),
                ("name", models.CharField(help_text="who reads there", max_length=80)),
                (
                    "shown",
                    models.CharField(help_text="its host: the rest of an address is often its key", max_length=300),
                ),
                ("address", models.TextField(help_text="encrypted")),
                ("secret", models.TextField(blank=True, help_text="encrypted; Slack has none")),
                ("old_secret", models.TextField(blank=True, help_text="encrypted")),
                ("secret_set_at", models.DateTimeField()),
                (
                    "given_up",
                    models.PositiveIntegerField(default=0, help_text="messages given up since the last that arrived"),
                ),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("disabled_at", models.DateTimeField(null=True)),
                ("disabled_note", models.TextField(blank=True)),
                (
                    "service",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="endpoints",
                        to="decisions.service",
                    ),
                ),
            ],
            options={"ordering": ["pk"]},
        ),
        migrations.CreateModel(
            name="MailSwitch",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("happening", models.CharField(max_length=20)),
                ("on", models.BooleanField()),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="mail_switches",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(fields=("person", "happening"), name="one_mail_switch_per_happening")
                ],
            },
        ),
        migrations.CreateModel(
            name="Message",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "name",
                    models.CharField(help_text="webhook-id, and the mail's Message-ID", max_length=40, unique=True),
                ),
                ("event", models.PositiveBigIntegerField(help_text="its number in the ledger")),
                ("kind", models.CharField(help_text="of the event", max_length=60)),
                ("happening", models.CharField(blank=True, max_length=20)),
                ("service", models.CharField(blank=True, help_text="slug", max_length=50)),
                ("subject", models.CharField(max_length=200)),
                ("actor", models.CharField(max_length=150)),
                ("at", models.DateTimeField(help_text="of the event")),
                ("sentence", models.TextField()),
                ("path", models.CharField(help_text="of the page, on this site", max_length=300)),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("sending", "Sending"),
                            ("sent", "Sent"),
                            ("given-up", "Given Up"),
                        ],
                        default="waiting",
                        max_length=10,
                    ),
                ),
                ("attempts", models.PositiveIntegerField(default=0)),
                ("next_at", models.DateTimeField()),
                ("claimed_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("status", models.PositiveSmallIntegerField(help_text="of the last HTTP answer", null=True)),
                (
                    "answer",
                    models.TextField(blank=True, help_text="the beginning of the last answer, or why there was none"),
                ),
                (
                    "endpoint",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="messages",
                        to="decisions.endpoint",
                    ),
                ),
                (
                    "person",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="messages",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "indexes": [models.Index(fields=["state", "next_at"], name="message_due")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("person__isnull", True), ("endpoint__isnull", True), _connector="XOR"),
                        name="a_message_has_one_receiver",
                    )
                ],
            },
        ),
        migrations.AddField(
            model_name="release",
            name="end_announced_at",
            field=models.DateTimeField(null=True),
        ),
    ]
