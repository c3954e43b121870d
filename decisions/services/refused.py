from loadtests.services.refused import Refused

__all__ = ["Refused"]
