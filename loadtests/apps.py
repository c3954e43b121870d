from django.apps import AppConfig


class LoadtestsConfig(AppConfig):
    name = "loadtests"

    def ready(self) -> None:
        # Registers itself.
        from loadtests import checks  # noqa: F401
