from loadtests import configurations
from loadtests.models import Configuration


def store_configuration(document: configurations.Configuration) -> Configuration:
    """The row of a configuration; equal configurations are one row."""
    row, _ = Configuration.objects.get_or_create(
        digest=document.digest, defaults={"content": document.content, "label": document.label}
    )
    return row
