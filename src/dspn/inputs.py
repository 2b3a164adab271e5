"""Rules that compute inputs from the place or the time of a slice."""

from dspn.data.inputs import Calendar, Cosine, Elapsed, Phase, Position, Rule, Sine, ToEnd

__all__ = ["Calendar", "Cosine", "Elapsed", "Phase", "Position", "Rule", "Sine", "ToEnd"]
