"""What an engineer says about a file: read from the form, checked, and turned into the options of an import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.http import QueryDict

from decisions.models import Service
from decisions.pages.upload_form import UploadForm
from loadtests.models import TrafficSet
from loadtests.traffic.importers import FORMAT_NAMES, ImportRefused, read_mapping
from loadtests.traffic.importers.formats import FORMATS
from loadtests.traffic.time_blocks import SHORTEST_BLOCK_S

MAX_SEED = 2**53 - 1
LARGEST_COUNT = 2**31 - 1
FORMAT_WORDS = {
    "auto": "auto: found from the file’s beginning",
    "own": "own: our own JSONL",
    "openai-batch": "openai-batch: OpenAI batch JSONL",
    "vllm-custom": "vllm-custom: vLLM custom JSONL",
    "sharegpt": "sharegpt: ShareGPT JSON or JSONL",
    "spec-bench": "spec-bench: Spec-Bench and MT-Bench questions",
    "azure": "azure: Azure LLM inference trace, CSV",
    "mooncake": "mooncake: Mooncake trace, JSONL",
    "burstgpt": "burstgpt: BurstGPT trace, CSV",
    "csv": "csv: other columns, with commas",
    "tsv": "tsv: other columns, with tabs",
    "jsonl": "jsonl: other fields, an object a line",
    "json": "json: other fields, one list",
}
LENGTHS_ONLY = frozenset({"azure", "mooncake", "burstgpt"})
# Nothing is kept for drafters unless someone asks for it.
SHARES = {"tuning": 0.4, "held-out": 0.6, "evaluation": 0.0}
SHARE_FIELDS = {"tuning": "tuning", "held-out": "held_out", "evaluation": "evaluation"}


class ImportForm(UploadForm):
    """``looked`` are the columns that a look at the file proposed and what the engineer made of them: pairs that count
    once they are confirmed."""

    file = forms.FileField(label="File", required=False, allow_empty_file=True)
    name = forms.CharField(label="Name of the set", max_length=120, required=False)
    service = forms.ChoiceField(label="Service", required=False)
    format = forms.ChoiceField(label="Format", choices=[(name, FORMAT_WORDS.get(name, name)) for name in FORMAT_NAMES])
    mapping = forms.CharField(label="Columns", required=False, max_length=20_000)
    no_header = forms.BooleanField(required=False)
    on_bad_row = forms.ChoiceField(label="Bad rows", choices=[("skip", "left out"), ("refuse", "refuse the file")])
    class_name = forms.CharField(label="Class", max_length=60, required=False)
    max_tokens = forms.IntegerField(label="Output limit", min_value=1, max_value=LARGEST_COUNT)
    max_context = forms.IntegerField(label="Context limit", min_value=1, max_value=LARGEST_COUNT, required=False)
    donor = forms.ChoiceField(label="Donor", choices=[("", "none"), ("set", "set"), ("file", "file")], required=False)
    donor_set = forms.ChoiceField(label="Donor", required=False)
    donor_file = forms.FileField(label="Donor", required=False, allow_empty_file=True)
    tuning = forms.FloatField(label="Tuning", min_value=1, max_value=99)
    held_out = forms.FloatField(label="Held-out", min_value=1, max_value=99)
    evaluation = forms.FloatField(label="Evaluation", min_value=0, max_value=98)
    seed = forms.IntegerField(label="Seed", min_value=0, max_value=MAX_SEED)
    block_s = forms.FloatField(label="Time block", min_value=SHORTEST_BLOCK_S, max_value=31_536_000)
    similarity = forms.FloatField(label="Nearly the same from", min_value=0.1, max_value=1)

    def __init__(
        self,
        *args: Any,
        services: list[Service],
        donors: list[TrafficSet],
        needs_file: bool = True,
        kept_donor: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.services, self.donors = services, donors
        self.needs_file, self.kept_donor = needs_file, kept_donor
        self.fields["service"].choices = [("", ""), *((one.slug, one.name) for one in services)]  # type: ignore[attr-defined]
        self.fields["donor_set"].choices = [("", ""), *((str(one.pk), one.name) for one in donors)]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if self.needs_file:
            self.check_file(cleaned)
        if "mapping" in cleaned:
            self.check_mapping(cleaned)
        self.check_donor(cleaned)
        self.check_shares(cleaned)
        return cleaned

    def check_file(self, cleaned: dict[str, Any]) -> None:
        if not cleaned.get("file"):
            self.add_error("file", "Choose the file to import.")
        elif not cleaned["file"].size:
            self.add_error("file", "The file is empty.")

    def check_mapping(self, cleaned: dict[str, Any]) -> None:
        columns = looked_columns(self.data)
        if columns and "confirmed" not in self.data:
            self.add_error("mapping", "Say that the columns mean that, or choose another format.")
            return
        lines = [line.strip() for line in cleaned["mapping"].splitlines() if line.strip()]
        cleaned["pairs"] = list(dict.fromkeys([*columns, *lines]))
        try:
            read_mapping(cleaned["pairs"])
        except ImportRefused as refusal:
            self.add_error("mapping", str(refusal).removeprefix("--map "))
            return
        self.check_format(cleaned)

    def check_format(self, cleaned: dict[str, Any]) -> None:
        chosen, mapped = cleaned.get("format"), bool(cleaned["pairs"])
        if mapped and chosen in FORMATS:
            self.add_error("format", f"Say what the columns are, or choose {chosen}, which has its own: not both.")
        elif not mapped and (cleaned.get("no_header") or chosen not in ("auto", *FORMATS)):
            self.add_error("mapping", "Say which column is what, one COLUMN=FIELD a line.")

    def check_donor(self, cleaned: dict[str, Any]) -> None:
        donor = cleaned.get("donor")
        if donor == "set" and not cleaned.get("donor_set"):
            self.add_error("donor", "Choose the set that gives its text.")
        if donor == "file" and not (cleaned.get("donor_file") or self.kept_donor or "check" in self.data):
            self.add_error("donor", "Choose the file that gives its text.")

    def check_shares(self, cleaned: dict[str, Any]) -> None:
        shares = [cleaned.get(field) for field in SHARE_FIELDS.values()]
        known = [share for share in shares if share is not None]
        if len(known) == len(shares) and abs(sum(known) - 100) > 1e-6:
            self.add_error("tuning", f"The shares must add up to 100 %, not {sum(known):g} %.")

    @property
    def options(self) -> dict[str, Any]:
        """As loadtests.services.request_import keeps them."""
        said, chosen = self.cleaned_data, self.chosen_service
        looked = looked_columns(self.data)
        shape = self.data.get("looked_shape", "") if looked and said["format"] == "auto" else ""
        return {
            "format": shape if shape in ("csv", "tsv", "json") else said["format"],
            "mapping": said["pairs"],
            "header": not (said["no_header"] or (looked and self.data.get("looked_header") == "no")),
            "on_bad_row": said["on_bad_row"],
            "class": said["class_name"],
            "max_tokens": said["max_tokens"],
            "max_context": said["max_context"],
            "donor": self.chosen_donor,
            "shares": shares_of(said),
            "seed": said["seed"],
            "block_s": said["block_s"],
            "similarity": said["similarity"],
            "redactions": chosen.redactions if chosen else [],
        }

    @property
    def chosen_service(self) -> Service | None:
        return next((one for one in self.services if one.slug == self.cleaned_data["service"]), None)

    @property
    def chosen_donor(self) -> dict[str, Any] | None:
        said = self.cleaned_data
        if said["donor"] == "set":
            return {"set": int(said["donor_set"])}
        if said["donor"] == "file":
            return {"file_name": said["donor_file"].name if said["donor_file"] else self.kept_donor}
        return None


def looked_columns(data: Mapping[str, Any]) -> list[str]:
    """COLUMN=FIELD pairs from the table of a look, without the columns that mean nothing."""
    if not isinstance(data, QueryDict):
        return []
    pairs = zip(data.getlist("looked_column"), data.getlist("looked_field"), strict=False)
    return [f"{column}={field}" for column, field in pairs if field]


def shares_of(said: Mapping[str, Any]) -> dict[str, float]:
    """Shares of 1; a part of nothing is no part."""
    return {kind: said[field] / 100 for kind, field in SHARE_FIELDS.items() if said[field]}


def defaults(services: list[Service]) -> dict[str, Any]:
    return {
        "format": "auto",
        "on_bad_row": "skip",
        "max_tokens": 1024,
        "service": services[0].slug if len(services) == 1 else "",
        **{SHARE_FIELDS[kind]: f"{100 * share:g}" for kind, share in SHARES.items()},
        "seed": 0,
        "block_s": 120,
        "similarity": 0.8,
    }


def like(traffic_set: TrafficSet, donor: TrafficSet | None) -> dict[str, Any]:
    """How a set was read and split, as the form has it, with the next seed: to split its file again. A
    donor's file has to be chosen again as well, and what the set doesn't say is as at the beginning."""
    imported, split = traffic_set.imported, traffic_set.split
    mapping = imported.get("mapping") or []
    known = {
        "name": f"{traffic_set.name[:100]}, split again",
        "service": traffic_set.service,
        "format": imported["format"] if imported.get("format") in FORMATS else "auto",
        "mapping": "\n".join(mapping),
        "no_header": bool(mapping) and all(pair.partition("=")[0].isdecimal() for pair in mapping),
        "class_name": imported.get("class"),
        "max_tokens": (imported.get("output_limit") or {}).get("default"),
        "max_context": (imported.get("context") or {}).get("max"),
        "donor": "set" if donor else "file" if imported.get("join") else "",
        "donor_set": str(donor.pk) if donor else "",
        "seed": (split.get("seed", 0) + 1) % (MAX_SEED + 1),
        "block_s": f"{split['block_s']:.12g}" if split.get("block_s") else None,
        "similarity": (split.get("near_duplicates") or {}).get("threshold"),
    }
    if split.get("shares"):
        known |= {field: f"{100 * split['shares'].get(kind, 0):g}" for kind, field in SHARE_FIELDS.items()}
    return {name: value for name, value in known.items() if value is not None}


def said_before(name: str, service: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """An import's options as the form has them."""
    donor = options["donor"] or {}
    return {
        "name": name,
        "service": service,
        "format": options["format"],
        "mapping": "\n".join(options["mapping"]),
        "no_header": not options["header"],
        "on_bad_row": options["on_bad_row"],
        "class_name": options["class"],
        "max_tokens": options["max_tokens"],
        "max_context": options["max_context"],
        "donor": "set" if "set" in donor else "file" if donor else "",
        "donor_set": str(donor.get("set", "")),
        **{field: f"{100 * options['shares'].get(kind, 0):g}" for kind, field in SHARE_FIELDS.items()},
        "seed": options["seed"],
        "block_s": f"{options['block_s']:.12g}",
        "similarity": options["similarity"],
    }
