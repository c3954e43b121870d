from __future__ import annotations

import json
import math
import os
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from config import demo, processes
from decisions.models import Account, BriefRevision, Signature, Verdict
from decisions.selectors.progress import campaigns_of, progress_of
from decisions.selectors.route_configuration import route_configuration
from decisions.services.freeze_brief import freeze_brief
from decisions.services.reauthenticate import Credentials
from decisions.services.sign_decision import sign_decision
from decisions.services.start_brief import start_brief
from workers.target import TargetError, prepare_demo_target

POLL_S = 2.0
MEANING = {"PASS": Signature.Meaning.APPROVE, "FAIL": Signature.Meaning.REJECT}
REASON = {
    "PASS": "Demonstration: the verdict is PASS, every guardrail holds, the fallback was tested at peak.",
    "FAIL": "Demonstration: the verdict is FAIL, so speculation stays off.",
}
OTHER_REASON = "Demonstration: the evidence does not settle it; the verdict says what would."


class Command(BaseCommand):
    help = (
        "Sets up the demo (accounts, service, traffic, brief), starts web and workers and drives the brief through "
        "every stage on real vLLM until its verdict waits for the owner. Running it again continues."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--headless", action="store_true", help="sign as the owner, print JSON and end")
        parser.add_argument("--search", action="store_true", help="a brief that searches K and schedules by a race")
        parser.add_argument("--port", type=int, default=8000)

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0)
        self.say_passwords()
        routes = demo.create_service()
        self.headless, self.search = options["headless"], options["search"]
        port = processes.free_port(options["port"])
        self.address = f"http://127.0.0.1:{port}"
        # For the processes that it starts: their messages lead to where the pages are.
        os.environ.setdefault("DRAFTPROOF_SITE_URL", self.address)
        commands = processes.commands(port, demo.POOL)
        logs = Path(settings.VAR) / "logs"
        try:
            with processes.running([processes.start("web", commands["web"], logs)]) as started:
                self.say(f"The pages are at {self.address}/ (logs in {logs})")
                revision = self.prepare(routes["chat"])
                started += [
                    processes.start(name, commands[name], logs) for name in ("control", "imports", "messages", "engine")
                ]
                self.drive(revision, started)
                if options["headless"]:
                    self.finish(revision)
                else:
                    self.keep_serving(revision, started)
        except KeyboardInterrupt:
            self.say("Stopped. Run it again to go on where it was.")
            if options["headless"]:
                raise CommandError("interrupted before the verdict") from None
        except (processes.ProcessEnded, TargetError) as error:
            raise CommandError(str(error)) from None

    def say(self, text: str) -> None:
        # Standard output is the JSON's alone in a headless run.
        self.stderr.write(text, ending="\n")
        self.stderr.flush()

    def look_after(self, started: list[processes.Started]) -> None:
        for line in processes.revive(started):
            self.say(line)

    def say_passwords(self) -> None:
        created = demo.create_accounts()
        if not created:
            self.say(
                "The accounts engineer, owner and auditor exist; forgotten passwords: manage.py changepassword NAME"
            )
        for one in created:
            self.say(f"account {one.username:<9} password {one.password}   (shown this once)")

    def prepare(self, route: Any) -> BriefRevision:
        title = demo.SEARCH_TITLE if self.search else demo.TITLE
        briefs = BriefRevision.objects.filter(brief__route=route, brief__title=title)
        revision = briefs.order_by("brief_id", "number").first()
        if not demo.models_dir_ready():
            self.say("Unpacking the target model, half a minute …")
        target = prepare_demo_target(settings.MODELS_DIR, settings.ENGINE_PYTHON)
        if revision is None:
            revision = demo.create_demo_brief(route, target, demo.import_demo_traffic(), search=self.search)
        engineer = Account.objects.get(username="engineer")
        if revision.state == "draft":
            freeze_brief(revision=revision, by=engineer)
        if revision.state == "frozen":
            start_brief(revision=revision, by=engineer)
        self.say(f"The brief: {self.address}/briefs/{revision.brief_id}/")
        return revision

    def drive(self, revision: BriefRevision, started: list[processes.Started]) -> None:
        """The stages go on by themselves; this only tells how far they are."""
        said = ""
        while revision.state == "measuring":
            self.look_after(started)
            if revision.halted and self.headless:
                raise CommandError(f"the stages have stopped: {revision.halted}")
            halted = f"The stages have stopped: {revision.halted}\nSign in as engineer at {self.address}/ to resume."
            line = halted if revision.halted else self.progress_line(revision)
            if line != said:
                self.say(line)
                said = line
            time.sleep(POLL_S)
            revision.refresh_from_db()

    def progress_line(self, revision: BriefRevision) -> str:
        progress = progress_of(revision, revision.document, campaigns_of(revision))
        stage = progress.current.label if progress.current else revision.state
        doing = "between two boots"
        if progress.running:
            boot = progress.running
            trial = next((one for one in boot.trials.all() if one.state == "running"), None)
            pair = "" if boot.pair is None else f"pair {boot.pair + 1}, "
            doing = f"{pair}{boot.candidate or boot.arm}: {f'level {trial.level}' if trial else 'starting the engine'}"
        left = math.ceil(progress.seconds_left / 60)
        return f"[{min(progress.done + 1, progress.total)}/{progress.total}] {stage}: {doing}, about {left} min left"

    def finish(self, revision: BriefRevision) -> None:
        """Signs as the owner would in the browser, through the same service function, and prints the result."""
        verdict = revision.verdicts.last()
        if verdict is None:
            raise CommandError(f"the brief is {revision.state} without a verdict")
        if revision.state == "in-review":
            with demo.password_for_now(Account.objects.get(username="owner")) as (owner, password):
                sign_decision(
                    verdict=verdict,
                    by=owner,
                    credentials=Credentials(password),
                    meaning=MEANING.get(verdict.result, Signature.Meaning.REQUEST_CHANGES),
                    reason=REASON.get(verdict.result, OTHER_REASON),
                )
            revision.refresh_from_db()
        self.stdout.write(json.dumps(result(revision, verdict), indent=2, ensure_ascii=False))

    def keep_serving(self, revision: BriefRevision, started: list[processes.Started]) -> None:
        verdict = revision.verdicts.last()
        if verdict:
            self.say(f"\n{verdict.result}: {verdict.sentence}\n")
        decide = "as owner to decide" if revision.state == "in-review" else f"to look (the brief is {revision.state})"
        self.say(f"Sign in {decide} at {self.address}/. Ctrl-C stops everything.")
        while True:
            self.look_after(started)
            time.sleep(1)


def result(revision: BriefRevision, verdict: Verdict) -> dict[str, Any]:
    document = verdict.document
    return {
        "verdict": verdict.result,
        "sentence": verdict.sentence,
        "state": revision.state,
        "nominee": revision.nominee or None,
        "levels": document["levels"],
        "route": route_configuration(revision.brief.route),
        "brief_digest": revision.digest,
        "verdict_digest": verdict.digest,
    }
