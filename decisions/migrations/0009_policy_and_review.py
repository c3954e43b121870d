from datetime import timedelta

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.utils import timezone

from loadtests.canonical import digest_of

# As the first policy was; its own module may have others since.
FIRST_POLICY = {
    "quorum": 1,
    "may_not_sign": ["author", "editor", "run-starter"],
    "second_against_verdict": True,
    "request_days": 14,
    "release_days": 90,
    "cooling_off_hours": 0,
    "break_glass": True,
    "break_glass_hours": 72,
}


def bind_signatures(apps, schema_editor):
    """What was signed before names the digests it was bound to in its verdict."""
    signatures = apps.get_model("decisions", "Signature").objects
    for one in signatures.select_related("revision", "verdict", "signer"):
        bound, username = bound_to(one.revision, one.verdict), one.signer.username
        signatures.filter(pk=one.pk).update(bound=bound, signer_username=username)


def ask_for_signatures(apps, schema_editor):
    """Verdicts that wait for their owner get a request, whose time begins now."""
    waiting = apps.get_model("decisions", "BriefRevision").objects.filter(state="in-review")
    now = timezone.now()
    for revision in waiting:
        verdict = revision.verdicts.order_by("pk").last()
        if verdict:
            apps.get_model("decisions", "SignatureRequest").objects.create(
                revision=revision,
                verdict=verdict,
                policy_document=FIRST_POLICY,
                policy_version=0,
                environment="production",
                bound=bound_to(revision, verdict),
                opened_by="draftproof",
                opened_at=now,
                expires_at=now + timedelta(days=FIRST_POLICY["request_days"]),
            )


def bound_to(revision, verdict):
    return digest_of({"brief": revision.digest, "evidence": verdict.evidence_digest, "verdict": verdict.digest})


class Migration(migrations.Migration):
    dependencies = [
        ("decisions", "0008_service_cases_and_demonstrations"),
    ]

    operations = [
        migrations.CreateModel(
            name="SigningPolicy",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("environment", models.SlugField(max_length=40)),
                ("version", models.PositiveIntegerField(help_text="from 1")),
                ("document", models.JSONField(help_text="as rules.policy.Policy has it")),
                ("reason", models.TextField(help_text="why it was set")),
                ("set_by", models.CharField(max_length=150)),
                ("set_at", models.DateTimeField(auto_now_add=True)),
            ],
            options={
                "ordering": ["service_id", "environment", "version"],
            },
        ),
        migrations.AddField(
            model_name="release",
            name="expiry_recorded_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="route",
            name="environment",
            field=models.SlugField(
                default="production",
                help_text="what it is for, such as production or staging: its policy is of that",
                max_length=40,
            ),
        ),
        migrations.AddField(
            model_name="signature",
            name="authentication",
            field=models.CharField(
                default="password", help_text="how the signer proved who they are, at the signature", max_length=40
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="signature",
            name="bound",
            field=models.CharField(
                default="", help_text="digest of the digests of brief, evidence and verdict", max_length=64
            ),
            preserve_default=False,
        ),
        migrations.AddField(
            model_name="signature",
            name="signer_username",
            field=models.CharField(default="", max_length=150),
            preserve_default=False,
        ),
        migrations.AlterField(
            model_name="signature",
            name="digest",
            field=models.CharField(help_text="of the statement", max_length=64),
        ),
        migrations.AlterField(
            model_name="signature",
            name="meaning",
            field=models.CharField(
                choices=[
                    ("approve", "Approve: this configuration may run on the route"),
                    ("reject", "Reject: this configuration may not run"),
                    ("request-changes", "Request changes: a new revision is needed"),
                    ("break-glass", "Break the glass: this configuration may run on the route until the owners decide"),
                ],
                max_length=20,
            ),
        ),
        migrations.CreateModel(
            name="ReviewComment",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("author_name", models.CharField(max_length=150)),
                ("text", models.TextField()),
                ("written_at", models.DateTimeField()),
                (
                    "author",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="comments",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
                (
                    "revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="comments",
                        to="decisions.briefrevision",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.CreateModel(
            name="SignatureRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("policy_document", models.JSONField()),
                (
                    "policy_version",
                    models.PositiveIntegerField(help_text="0: the policy of a service that has set none"),
                ),
                ("environment", models.SlugField(max_length=40)),
                (
                    "bound",
                    models.CharField(help_text="digest of the digests of brief, evidence and verdict", max_length=64),
                ),
                ("opened_by", models.CharField(max_length=150)),
                ("opened_at", models.DateTimeField()),
                ("expires_at", models.DateTimeField()),
                ("closed_at", models.DateTimeField(null=True)),
                (
                    "outcome",
                    models.CharField(
                        blank=True,
                        choices=[
                            ("approved", "Approved"),
                            ("rejected", "Rejected"),
                            ("changes-requested", "Changes Requested"),
                            ("withdrawn", "Withdrawn"),
                            ("expired", "Expired"),
                        ],
                        max_length=20,
                    ),
                ),
                ("glass_broken_at", models.DateTimeField(null=True)),
                ("expiry_recorded_at", models.DateTimeField(null=True)),
                ("fall_recorded_at", models.DateTimeField(null=True)),
                (
                    "revision",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="signature_requests",
                        to="decisions.briefrevision",
                    ),
                ),
                (
                    "verdict",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="signature_requests",
                        to="decisions.verdict",
                    ),
                ),
            ],
            options={
                "ordering": ["pk"],
            },
        ),
        migrations.AddField(
            model_name="signature",
            name="request",
            field=models.ForeignKey(
                help_text="null: signed before there were requests",
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="signatures",
                to="decisions.signaturerequest",
            ),
        ),
        migrations.AddConstraint(
            model_name="signature",
            constraint=models.UniqueConstraint(
                fields=("request", "signer", "meaning"), name="one_signature_per_person_and_meaning"
            ),
        ),
        migrations.AddField(
            model_name="signingpolicy",
            name="service",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT, related_name="policies", to="decisions.service"
            ),
        ),
        migrations.AddConstraint(
            model_name="signaturerequest",
            constraint=models.UniqueConstraint(
                condition=models.Q(("closed_at", None)), fields=("revision",), name="one_open_request_per_revision"
            ),
        ),
        migrations.AddConstraint(
            model_name="signingpolicy",
            constraint=models.UniqueConstraint(
                fields=("service", "environment", "version"), name="one_version_of_a_policy_per_environment"
            ),
        ),
        migrations.RunPython(bind_signatures, migrations.RunPython.noop),
        migrations.RunPython(ask_for_signatures, migrations.RunPython.noop),
    ]
