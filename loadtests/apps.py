from django.apps import AppConfig


class LoadtestsConfig(AppConfig):
    name = "loadtests"
