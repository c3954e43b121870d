from django.apps import AppConfig


class DecisionsConfig(AppConfig):
    name = "decisions"

    def ready(self) -> None:
        from decisions import ledger
        from decisions.selectors.seal import may_open
        from loadtests import journal, seal

        journal.register(ledger.append, ledger.serialise_writers)
        seal.register(may_open)
