"""How fast a boot is: its own factor, a slow drift, and pauses."""

import math

from loadtests.simulator.model import Nuisances
from loadtests.traffic.arrivals import generator_for

# The drift is a staircase: between two ticks a step's cost depends on its batch alone, so that steps can be summed.
TICK_S = 10.0
HOUR_S = 3_600.0


class Pace:
    """All drawn from the seed: the same boot is as fast in every process. Times are seconds since the boot."""

    def __init__(self, nuisances: Nuisances, seed: int) -> None:
        rng = generator_for("boot", seed)
        # The median is 1: a slower boot is as likely as a faster one.
        self.factor = math.exp(nuisances.boot_sd * float(rng.standard_normal()))
        self.slope = nuisances.drift_sd_per_hour * float(rng.standard_normal()) / HOUR_S
        self.nuisances = nuisances
        self._rng = generator_for("pauses", seed)
        self.pause_at, self.pause_s = math.inf, 0.0
        if nuisances.pauses_per_hour:
            self._draw_pause(0.0)

    def _draw_pause(self, after: float) -> None:
        self.pause_at = after + float(self._rng.exponential(HOUR_S / self.nuisances.pauses_per_hour))
        self.pause_s = float(self._rng.exponential(self.nuisances.pause_mean_s))

    def after_pauses(self, now: float) -> float:
        """The moment at which computing goes on, when a step is to start now."""
        while self.pause_at <= now:
            began, lasted = self.pause_at, self.pause_s
            # A pause in an idle time is over before anyone notices.
            now = max(now, began + lasted)
            self._draw_pause(began + lasted)
        return now

    def factor_at(self, now: float) -> float:
        """What a step's cost is multiplied by."""
        return self.factor * math.exp(self.slope * TICK_S * math.floor(now / TICK_S))

    def changes_at(self, now: float) -> float:
        """The next moment at which something about the pace changes."""
        tick = TICK_S * (math.floor(now / TICK_S) + 1) if self.slope else math.inf
        return min(self.pause_at, tick)
