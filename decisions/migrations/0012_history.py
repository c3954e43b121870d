"""Where each event belongs, what the filtered history is read by, how far the chain is verified, and the tokens of feeds.

The new columns are null, so that SQLite adds them without building the ledger's table anew: its triggers stay.
"""

import re

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

SLUGS = "route__service__slug", "route__slug"
# The one change that the ledger ever takes, to columns that no hash is over.
STEP_ASIDE = {
    "sqlite": "DROP TRIGGER ledger_no_update",
    "postgresql": "ALTER TABLE decisions_event DISABLE TRIGGER ledger_no_change",
}
STEP_BACK = {
    "sqlite": "CREATE TRIGGER ledger_no_update BEFORE UPDATE ON decisions_event "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END",
    "postgresql": "ALTER TABLE decisions_event ENABLE TRIGGER ledger_no_change",
}


def places(apps):
    """(pattern of subjects, what its part in brackets is the key of: service and route)"""
    revisions = apps.get_model("decisions", "BriefRevision").objects.exclude(digest="")
    by_digest = {
        digest: place for digest, *place in revisions.values_list("digest", *(f"brief__{slug}" for slug in SLUGS))
    }
    briefs = apps.get_model("decisions", "Brief").objects.values_list("pk", *SLUGS)
    routes = apps.get_model("decisions", "Route").objects.values_list("slug", "service__slug", "slug")
    services = apps.get_model("decisions", "Service").objects.values_list("slug", flat=True)
    yield r"brief (\d+) revision \d+", {str(key): place for key, *place in briefs}
    yield r"route (\S+)", {slug: place for slug, *place in routes}
    yield r"service (\S+)", {slug: (slug, None) for slug in services}
    for name, digest in (
        ("Campaign", "brief_digest"),
        ("Boot", "campaign__brief_digest"),
        ("Trial", "boot__campaign__brief_digest"),
    ):
        rows = apps.get_model("loadtests", name).objects.values_list("pk", digest)
        yield rf"{name.lower()} (\d+)", {str(key): by_digest[found] for key, found in rows if found in by_digest}
    for name, model in (("set", "TrafficSet"), ("import", "TrafficImport")):
        rows = apps.get_model("loadtests", model).objects.exclude(service="").values_list("pk", "service")
        yield rf"traffic {name} (\d+)", {str(key): (service, None) for key, service in rows}


def write_places(apps, schema_editor):
    events = apps.get_model("decisions", "Event").objects
    if not events.exists():
        return
    known = [(re.compile(pattern), found) for pattern, found in places(apps)]
    schema_editor.execute(STEP_ASIDE[schema_editor.connection.vendor])
    for subject in list(events.order_by().values_list("subject", flat=True).distinct()):
        for pattern, found in known:
            match = pattern.fullmatch(subject)
            if match and match[1] in found:
                service, route = found[match[1]]
                events.filter(subject=subject).update(service=service, route=route)
    schema_editor.execute(STEP_BACK[schema_editor.connection.vendor])


class Migration(migrations.Migration):
    dependencies = [
        ("decisions", "0011_api_tokens"),
        ("loadtests", "0005_behaviour"),
    ]

    operations = [
        migrations.AddField("event", "service", models.CharField(max_length=50, null=True)),
        migrations.AddField("event", "route", models.CharField(max_length=50, null=True)),
        migrations.RunPython(write_places, migrations.RunPython.noop),
        migrations.AddIndex("event", models.Index(fields=["kind", "sequence"], name="event_kind")),
        migrations.AddIndex("event", models.Index(fields=["actor", "sequence"], name="event_actor")),
        migrations.AddIndex("event", models.Index(fields=["service", "sequence"], name="event_service")),
        migrations.AddIndex("event", models.Index(fields=["route", "sequence"], name="event_route")),
        migrations.AddIndex("event", models.Index(fields=["at"], name="event_at")),
        migrations.CreateModel(
            name="ChainCheck",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "verified_to",
                    models.PositiveBigIntegerField(
                        default=0, help_text="number of the last event that is known to hold"
                    ),
                ),
                ("head", models.CharField(help_text="that event's hash", max_length=64)),
                ("verified_at", models.DateTimeField(null=True)),
                ("walked_to", models.PositiveBigIntegerField(default=0)),
                ("walked_head", models.CharField(blank=True, max_length=64)),
                ("walk_began_at", models.DateTimeField(null=True)),
                (
                    "whole_at",
                    models.DateTimeField(help_text="when the last walk from the first event on ended", null=True),
                ),
                (
                    "checkpoint",
                    models.PositiveBigIntegerField(default=0, help_text="key of the last checkpoint held against it"),
                ),
                (
                    "fault",
                    models.TextField(blank=True, help_text="what doesn't hold; only a whole walk takes it back"),
                ),
                ("fault_event", models.PositiveBigIntegerField(null=True)),
                ("fault_at", models.DateTimeField(null=True)),
            ],
        ),
        migrations.CreateModel(
            name="FeedToken",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("prefix", models.CharField(help_text="how the secret begins, to tell tokens apart", max_length=12)),
                ("digest", models.CharField(help_text="SHA-256 of the secret", max_length=64, unique=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("last_used_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="feed_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "ordering": ["-pk"],
            },
        ),
    ]
