"""What a net says of one variable: a distribution, given numbers of any size."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import Tensor
from torch.nn import functional

# In standard deviations of the variable: a narrower Gaussian would learn single values by heart.
_LEAST_DEVIATION: Final = 0.01
_LEAST_LEVEL: Final = 2.0**-53


class Output(ABC):
    """A family of distributions of one variable."""

    @property
    @abstractmethod
    def num_features(self) -> int:
        """How many numbers a net reads of a value."""

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """How many numbers a distribution has; they may be any."""

    @abstractmethod
    def features(self, values: Tensor) -> Tensor:
        """What a net reads, one axis more than the values."""

    @abstractmethod
    def log_prob(self, parameters: Tensor, values: Tensor) -> Tensor:
        """Log P(value), or its log density; parameters along the last axis."""

    @abstractmethod
    def draw(self, parameters: Tensor, uniforms: Tensor) -> Tensor:
        """A value from each distribution, by a number that is uniform on [0, 1)."""


@final
@dataclass(frozen=True)
class Categories(Output):
    """P(category) by a softmax."""

    num_categories: int

    @property
    def num_features(self) -> int:
        """One for each category."""
        return self.num_categories

    @property
    def num_parameters(self) -> int:
        """One for each category."""
        return self.num_categories

    def features(self, values: Tensor) -> Tensor:
        """One for the category, zero for the others."""
        return functional.one_hot(values.long(), self.num_categories).float()

    def log_prob(self, parameters: Tensor, values: Tensor) -> Tensor:
        """Log P(category)."""
        logs = functional.log_softmax(parameters, dim=-1)
        return logs.gather(-1, values.long().unsqueeze(-1)).squeeze(-1)

    def draw(self, parameters: Tensor, uniforms: Tensor) -> Tensor:
        """The category whose share of [0, 1) holds the number."""
        place, _, _ = _share(functional.softmax(parameters, dim=-1), uniforms)
        return place.to(parameters.dtype)


@final
@dataclass(frozen=True)
class GaussianMixture(Output):
    """Density of a standardised number: a mixture of Gaussians."""

    num_components: int

    @property
    def num_features(self) -> int:
        """The number itself."""
        return 1

    @property
    def num_parameters(self) -> int:
        """Logit, mean and free deviation of each Gaussian."""
        return 3 * self.num_components

    def features(self, values: Tensor) -> Tensor:
        """The number itself."""
        return values.unsqueeze(-1)

    def log_prob(self, parameters: Tensor, values: Tensor) -> Tensor:
        """Log density."""
        logits, means, deviations = _gaussians(parameters)
        distance = (values.unsqueeze(-1) - means) / deviations
        densities = -0.5 * (distance**2 + math.log(2 * math.pi)) - deviations.log()
        return torch.logsumexp(functional.log_softmax(logits, dim=-1) + densities, dim=-1)

    def draw(self, parameters: Tensor, uniforms: Tensor) -> Tensor:
        """A number from the Gaussian whose share of [0, 1) holds the uniform one.

        Where in the share it lies is uniform again, and says which number.
        """
        logits, means, deviations = _gaussians(parameters)
        place, start, size = _share(functional.softmax(logits, dim=-1), uniforms)
        # Rounding may give the ends of the unit interval, whose quantiles are infinite.
        level = ((uniforms - start) / size).clamp(_LEAST_LEVEL, 1 - _LEAST_LEVEL)
        mean, deviation = (
            part.gather(-1, place[..., None])[..., 0] for part in (means, deviations)
        )
        return mean + deviation * torch.special.ndtri(level)


def _gaussians(parameters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, means and deviations."""
    logits, means, free = parameters.chunk(3, dim=-1)
    return logits, means, functional.softplus(free) + _LEAST_DEVIATION


def _share(probabilities: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Which share of [0, 1) holds the number, where that share starts, and its size."""
    ends = probabilities.cumsum(dim=-1)
    place = (ends[..., :-1] <= uniforms[..., None]).sum(dim=-1)
    end, size = (part.gather(-1, place[..., None])[..., 0] for part in (ends, probabilities))
    return place, end - size, size
