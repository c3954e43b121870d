from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("decisions", "0005_taken_look"),
    ]

    operations = [
        migrations.AddField(
            model_name="briefcampaign",
            name="race",
            field=models.JSONField(null=True),
        ),
    ]
