from django.apps import AppConfig


class DecisionsConfig(AppConfig):
    name = "decisions"

    def ready(self) -> None:
        from decisions import ledger
        from loadtests import journal

        journal.register(ledger.append, ledger.serialise_writers)
