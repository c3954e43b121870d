from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("loadtests", "0003_joined_sets"),
    ]

    operations = [
        migrations.CreateModel(
            name="Removal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("asked_at", models.DateTimeField(auto_now_add=True)),
                ("tried_at", models.DateTimeField(null=True)),
                ("trouble", models.TextField(blank=True)),
            ],
        ),
    ]
