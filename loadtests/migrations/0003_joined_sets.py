from typing import Any

from django.db import migrations, models


def say_where_text_is_from(apps: Any, _: object) -> None:
    """As the import wrote it down. Sets that were imported before it did have no digest to tell."""
    for one in apps.get_model("loadtests", "TrafficSet").objects.only("pk", "imported").iterator():
        said = one.imported
        if not said.get("acceptance", {}).get("usable", True):
            continue
        file = (said.get("join") or {}).get("donor") or said.get("source") or {}
        one.text_digest = file.get("sha256", "")
        one.save(update_fields=["text_digest"])


class Migration(migrations.Migration):
    dependencies = [
        ("loadtests", "0002_traffic_as_it_comes"),
    ]

    operations = [
        migrations.AddField(
            model_name="trafficset",
            name="text_digest",
            field=models.CharField(
                blank=True,
                db_index=True,
                default="",
                help_text="SHA-256 of the file that its text was read from: its own or, where text was joined, its "
                "donor's",
                max_length=64,
            ),
            preserve_default=False,
        ),
        migrations.RunPython(say_where_text_is_from, migrations.RunPython.noop),
    ]
