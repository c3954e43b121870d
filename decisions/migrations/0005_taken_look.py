import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("decisions", "0004_imported_trials"),
    ]

    operations = [
        migrations.CreateModel(
            name="TakenLook",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("number", models.PositiveSmallIntegerField()),
                ("pairs", models.PositiveIntegerField()),
                ("result", models.CharField(max_length=12)),
                ("content", models.BinaryField()),
                ("digest", models.CharField(max_length=64)),
                (
                    "evidence_digest",
                    models.CharField(help_text="of the list of evidence digests it was computed from", max_length=64),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="looks",
                        to="decisions.briefrevision",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [models.UniqueConstraint(fields=("revision", "number"), name="one_taking_per_look")],
            },
        ),
    ]
