from loadtests import uploads
from loadtests.services.import_traffic import drop_unused


def remove_left_behind() -> None:
    """Removes what killed imports left: the directories they worked in, and what they had stored for no set yet."""
    for place in uploads.abandoned():
        on_their_way = uploads.intended(place)
        if on_their_way:
            drop_unused(on_their_way)
