"""Signed checkpoints of the ledger's head, and the public keys they are signed with. Both are written once, as the
ledger is."""

from django.db import migrations, models

MESSAGE = "the ledger is append-only"
# Table, and what a row is one of a kind by: REPLACE deletes without asking the delete trigger (see migration 0002).
TABLES = {"signingkey": "key_id", "checkpoint": "digest"}


def sqlite(table, unique):
    for act in ("UPDATE", "DELETE"):
        yield (
            f"CREATE TRIGGER ledger_{table}_no_{act.lower()} BEFORE {act} ON decisions_{table} "
            f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"
        )
    there = f"EXISTS (SELECT 1 FROM decisions_{table} WHERE id = NEW.id OR {unique} = NEW.{unique})"  # noqa: S608
    yield (
        f"CREATE TRIGGER ledger_{table}_no_replace BEFORE INSERT ON decisions_{table} WHEN {there} "
        f"BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"
    )


def postgresql(table, unique):
    yield (
        f"CREATE TRIGGER {table}_no_change BEFORE UPDATE OR DELETE ON decisions_{table} "
        "FOR EACH ROW EXECUTE FUNCTION ledger_is_append_only()"
    )
    yield (
        f"CREATE TRIGGER {table}_no_truncate BEFORE TRUNCATE ON decisions_{table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only()"
    )


def create_triggers(apps, schema_editor):
    statements = {"sqlite": sqlite, "postgresql": postgresql}[schema_editor.connection.vendor]
    for table, unique in TABLES.items():
        for statement in statements(table, unique):
            schema_editor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [
        ("decisions", "0009_policy_and_review"),
    ]

    operations = [
        migrations.CreateModel(
            name="SigningKey",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("key_id", models.CharField(help_text="SHA-256 of the public key", max_length=64, unique=True)),
                ("public_key", models.BinaryField(help_text="Ed25519, SubjectPublicKeyInfo in DER")),
                (
                    "rotation",
                    models.BinaryField(
                        help_text="the signed statement that it follows the key before; null: none", null=True
                    ),
                ),
                ("added_at", models.DateTimeField()),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="Checkpoint",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "size",
                    models.PositiveBigIntegerField(db_index=True, help_text="number of the last event that it is over"),
                ),
                ("head", models.CharField(help_text="that event's hash", max_length=64)),
                ("at", models.DateTimeField()),
                ("key_id", models.CharField(max_length=64)),
                ("content", models.BinaryField()),
                ("digest", models.CharField(max_length=64, unique=True)),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.RunPython(create_triggers, migrations.RunPython.noop),
    ]
