"""Accounts that others have made, fresh sign-ins at the single sign-on, and the cache that every process sees."""

import django.db.models.deletion
from django.conf import settings
from django.core.management import call_command
from django.db import migrations, models


def create_cache_table(apps, schema_editor):
    # By its name: the tests and an installation with Redis keep their cache elsewhere.
    call_command("createcachetable", "cache", database=schema_editor.connection.alias, verbosity=0)


class Migration(migrations.Migration):
    dependencies = [("decisions", "0013_notifications")]

    operations = [
        migrations.AddField("account", "must_change_password", models.BooleanField(default=False)),
        migrations.CreateModel(
            name="FreshSignIn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("auth_time", models.DateTimeField(help_text="when they proved who they are there")),
                ("received_at", models.DateTimeField(auto_now_add=True)),
                ("used_at", models.DateTimeField(null=True)),
                (
                    "person",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="fresh_sign_ins",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("person", "auth_time"), name="one_fresh_sign_in_per_auth_time")
                ],
            },
        ),
        migrations.RunPython(create_cache_table, migrations.RunPython.noop),
    ]
