"""Files of the evidence store that decisions name, beside those of traffic and of trials."""

from collections.abc import Collection

from django.db.models import Q

from decisions.models import BehaviourResult, Demonstration, ImportedTrial


def named_files(digests: Collection[str]) -> set[str]:
    """Which of these an imported trial names, a result of the preserved-behaviour suite or a demonstration, be it that
    it was set aside or withdrawn."""
    trials = ImportedTrial.objects.filter(Q(manifest_digest__in=digests) | Q(records_digest__in=digests))
    named = {one for both in trials.values_list("manifest_digest", "records_digest") for one in both}
    named |= {*BehaviourResult.objects.filter(digest__in=digests).values_list("digest", flat=True)}
    return named | {*Demonstration.objects.filter(result_digest__in=digests).values_list("result_digest", flat=True)}
