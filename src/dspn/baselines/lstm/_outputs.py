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
        logits, means, free = parameters.chunk(3, dim=-1)
        deviations = functional.softplus(free) + _LEAST_DEVIATION
        distance = (values.unsqueeze(-1) - means) / deviations
        densities = -0.5 * (distance**2 + math.log(2 * math.pi)) - deviations.log()
        return torch.logsumexp(functional.log_softmax(logits, dim=-1) + densities, dim=-1)
