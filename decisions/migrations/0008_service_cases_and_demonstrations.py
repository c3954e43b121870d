import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("decisions", "0007_behaviour"),
    ]

    operations = [
        migrations.CreateModel(
            name="ServiceCases",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("version", models.PositiveIntegerField(help_text="from 1")),
                ("source", models.TextField(help_text="as written")),
                ("content", models.BinaryField()),
                ("digest", models.CharField(max_length=64)),
                ("count", models.PositiveIntegerField(help_text="of cases in it")),
                ("created_by", models.CharField(max_length=150)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "service",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="cases",
                        to="decisions.service",
                    ),
                ),
            ],
            options={
                "ordering": ["service_id", "version"],
                "constraints": [
                    models.UniqueConstraint(fields=("service", "version"), name="one_version_of_a_service_s_cases")
                ],
            },
        ),
        migrations.CreateModel(
            name="Demonstration",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "engine",
                    models.CharField(
                        help_text="vllm, remote or simulated, as in a configuration's runtime", max_length=20
                    ),
                ),
                ("distribution", models.CharField(max_length=120)),
                ("version", models.CharField(max_length=120)),
                ("method", models.CharField(help_text="of speculation", max_length=30)),
                (
                    "mode",
                    models.CharField(
                        choices=[
                            ("greedy", "greedy"),
                            ("sampled", "sampled (temperature, top-p, top-k)"),
                            ("constrained", "constrained (structured output)"),
                        ],
                        help_text="of sampling",
                        max_length=12,
                    ),
                ),
                ("result_digest", models.CharField(max_length=64)),
                (
                    "evidence",
                    models.JSONField(help_text="digests of the answers, by the server that gave them"),
                ),
                (
                    "summary",
                    models.JSONField(help_text="what the result said, without a word of an answer"),
                ),
                ("note", models.CharField(blank=True, max_length=1000)),
                ("vouched_by", models.CharField(max_length=150)),
                ("vouched_at", models.DateTimeField(auto_now_add=True)),
                ("withdrawn_at", models.DateTimeField(null=True)),
                ("withdrawn_by", models.CharField(blank=True, max_length=150)),
                ("withdrawn_reason", models.TextField(blank=True)),
                (
                    "result",
                    models.ForeignKey(
                        help_text="null: a file",
                        null=True,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="demonstrations",
                        to="decisions.behaviourresult",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("withdrawn_at", None)),
                        fields=("engine", "distribution", "version", "method", "mode", "result_digest"),
                        name="a_result_is_vouched_for_once",
                    )
                ],
            },
        ),
    ]
