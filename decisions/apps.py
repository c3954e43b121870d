from django.apps import AppConfig


class DecisionsConfig(AppConfig):
    name = "decisions"

    def ready(self) -> None:
        from decisions import ledger
        from decisions.selectors.named_files import named_files
        from decisions.selectors.seal import may_open
        from loadtests import journal, naming, seal

        journal.register(ledger.append, ledger.serialise_writers)
        seal.register(may_open)
        naming.register(named_files)
