"""PyTorch when it is needed, with randomness and threads of its own."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from dspn.errors import DspnError


def require_torch(caller: str) -> None:
    """Raises where PyTorch is not installed."""
    if find_spec("torch") is None:
        raise DspnError(
            f"`{caller}` needs PyTorch, but it is not installed; install it with pip install torch."
        )


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """As many threads as said, and afterwards as many as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """First weights and dropout drawn from the seed; other users of PyTorch notice nothing."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.default_generator.manual_seed(seed)
        torch.cuda.manual_seed_all(seed)
        yield


def require_device(name: str) -> None:
    """Raises where PyTorch has no such device here."""
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise DspnError(
            f"`device` must be one that PyTorch finds, such as 'cpu', but is {name!r}: "
            f"{str(error).splitlines()[0]}"
        ) from error
