"""The ledger refuses changes in the database itself; the four groups exist from the start."""

from django.db import migrations

MESSAGE = "the ledger is append-only"

SQLITE = [
    f"CREATE TRIGGER ledger_no_{act.lower()} BEFORE {act} ON decisions_event BEGIN SELECT RAISE(ABORT, '{MESSAGE}'); END"
    for act in ("UPDATE", "DELETE")
]
# REPLACE deletes without asking the delete trigger, so the insert is asked instead.
SQLITE.append(
    "CREATE TRIGGER ledger_no_replace BEFORE INSERT ON decisions_event WHEN EXISTS (SELECT 1 FROM decisions_event "
    "WHERE sequence = NEW.sequence OR previous = NEW.previous) "
    "BEGIN SELECT RAISE(ABORT, 'the ledger is append-only'); END"
)
POSTGRESQL = [
    "CREATE FUNCTION ledger_is_append_only() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$ BEGIN RAISE EXCEPTION '{MESSAGE}'; END $$",
    "CREATE TRIGGER ledger_no_change BEFORE UPDATE OR DELETE ON decisions_event "
    "FOR EACH ROW EXECUTE FUNCTION ledger_is_append_only()",
    "CREATE TRIGGER ledger_no_truncate BEFORE TRUNCATE ON decisions_event "
    "FOR EACH STATEMENT EXECUTE FUNCTION ledger_is_append_only()",
]


def create_triggers(apps, schema_editor):
    statements = {"sqlite": SQLITE, "postgresql": POSTGRESQL}[schema_editor.connection.vendor]
    for statement in statements:
        schema_editor.execute(statement)


def create_groups(apps, schema_editor):
    for name in ("engineer", "owner", "auditor", "operator"):
        apps.get_model("auth", "Group").objects.get_or_create(name=name)


class Migration(migrations.Migration):
    dependencies = [("decisions", "0001_initial"), ("auth", "0012_alter_user_first_name_max_length")]

    operations = [
        migrations.RunPython(create_triggers, migrations.RunPython.noop),
        migrations.RunPython(create_groups, migrations.RunPython.noop),
    ]
