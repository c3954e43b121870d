from __future__ import annotations

import json

from django.conf import settings
from django.db import models

from decisions.models.service import Route
from decisions.rules import brief as rules
from loadtests.models import Campaign, TrafficSet


class Brief(models.Model):
    """The acceptance brief of a route, over all its revisions."""

    route = models.ForeignKey(Route, on_delete=models.PROTECT, related_name="briefs")
    title = models.CharField(max_length=120)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"Brief {self.pk}: {self.title}"


class BriefRevision(models.Model):
    brief = models.ForeignKey(Brief, on_delete=models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=20, default="draft")
    source = models.TextField(help_text="the YAML as written")
    # Set when frozen: the exact bytes that were hashed.
    content = models.BinaryField(null=True)
    digest = models.CharField(max_length=64, blank=True)
    traffic_set = models.ForeignKey(TrafficSet, on_delete=models.PROTECT, null=True, related_name="revisions")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="revisions_written")
    editors = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="revisions_edited", blank=True)
    run_starters = models.ManyToManyField(settings.AUTH_USER_MODEL, related_name="revisions_started", blank=True)
    nominee = models.CharField(max_length=60, blank=True, help_text="the nominated candidate's name; empty is none")
    nomination = models.JSONField(null=True, help_text="why, with the tuning figures it rests on")
    halted = models.TextField(blank=True, help_text="why the stages stopped and what to do")
    created_at = models.DateTimeField(auto_now_add=True)
    frozen_at = models.DateTimeField(null=True)

    class Meta:
        ordering = ["brief_id", "number"]
        constraints = [models.UniqueConstraint(fields=["brief", "number"], name="one_revision_number")]

    def __str__(self) -> str:
        return f"{self.brief}, revision {self.number}"

    @property
    def title(self) -> str:
        """As this revision itself says it, once frozen: a later draft may have another."""
        return str(json.loads(bytes(self.content))["title"]) if self.content is not None else self.brief.title

    @property
    def document(self) -> rules.Brief:
        """The frozen brief; a draft is parsed from its source and may raise BadBrief."""
        if self.content is not None:
            return rules.parse_brief(json.loads(bytes(self.content)))
        return rules.read_brief(self.source)


class BriefCampaign(models.Model):
    """Which campaigns were run for a revision. ``race``: the step of the race that planned it, as
    ``rules.race.step_document`` has it; null where tuning is no race, and for every other purpose."""

    revision = models.ForeignKey(BriefRevision, on_delete=models.PROTECT, related_name="campaigns")
    campaign = models.OneToOneField(Campaign, on_delete=models.PROTECT, related_name="brief_campaign")
    race = models.JSONField(null=True)

    class Meta:
        ordering = ["campaign_id"]

    def __str__(self) -> str:
        return f"{self.campaign} of {self.revision}"
