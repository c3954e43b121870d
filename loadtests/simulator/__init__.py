"""An engine whose truth is stated: in virtual time (``Boot``), and the same behind HTTP (``server``)."""

from loadtests.simulator.model import EngineModel, read_costs, read_model
from loadtests.simulator.presets import PRESETS, preset
from loadtests.simulator.trial import Boot, SimulatedTrial

__all__ = ["PRESETS", "Boot", "EngineModel", "SimulatedTrial", "preset", "read_costs", "read_model"]
