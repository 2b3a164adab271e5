"""Learning on a Ray cluster of several nodes: the model of one machine, whatever is lost."""

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dspn
from dspn.data.dataset import Dataset
from dspn.data.prepare import prepare
from dspn.errors import DspnError
from dspn.executors import Ray, Serial, _connected_ray
from tests.ray_tasks import slow_square

pytestmark = pytest.mark.slow
ray: Any = pytest.importorskip("ray", reason="ray is not installed")

NUM_SEQUENCES = 400


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and another node of one core each, as processes of this machine."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    path = [os.getcwd(), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    size = 100 * 2**20
    head = {"num_cpus": 1, "object_store_memory": size, "include_dashboard": False}
    found = Cluster(initialize_head=True, head_node_args=head)
    found.add_node(num_cpus=1, object_store_memory=size)
    found.wait_for_nodes()
    yield found
    ray.shutdown()
    _connected_ray.cache_clear()
    found.shutdown()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    rng = np.random.default_rng(0)
    directory = tmp_path_factory.mktemp("ray")
    lengths = rng.integers(3, 12, NUM_SEQUENCES)
    owners = np.repeat(np.arange(NUM_SEQUENCES), lengths)
    bits = rng.random((owners.size, 3)) < np.where(owners % 2 == 0, 0.2, 0.7)[:, None]
    rows = "\n".join(f"{o},{a:d},{b:d},{c:d}" for o, (a, b, c) in zip(owners, bits, strict=True))
    (directory / "rows.csv").write_text(f"id,a,b,c\n{rows}\n")
    shards = directory / "shards"
    return prepare(directory / "rows.csv", shards, sequence="id", shard_slices=100)


def digest(model: Any, path: Path) -> str:
    model.save(path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def hmm(executor: Any) -> Any:
    em = dspn.EmOptions(max_steps=4, tolerance=0)
    return dspn.HMM(3, em=em, random_state=0, executor=executor)


def test_an_address_that_does_not_answer_is_refused() -> None:
    refusal = "the Ray cluster at '127.0.0.1:1' cannot be used: .*; start one with `ray start"
    with pytest.raises(DspnError, match=refusal):
        Ray("127.0.0.1:1").map(len, ["a"])


@pytest.mark.filterwarnings("ignore::dspn.errors.ConvergenceWarning")
def test_a_cluster_learns_the_model_of_one_machine_whatever_node_is_lost(
    cluster: Any, data: Dataset, tmp_path: Path
) -> None:
    expected = digest(hmm(Serial()).fit(data), tmp_path / "serial.dspn")
    executor = Ray(cluster.address)
    assert executor.num_workers == 2
    assert digest(hmm(executor).fit(data), tmp_path / "two.dspn") == expected

    more = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    cluster.wait_for_nodes()
    found: list[str] = []
    fit = threading.Thread(
        target=lambda: found.append(digest(hmm(executor).fit(data), tmp_path / "three.dspn"))
    )
    fit.start()
    time.sleep(0.5)
    cluster.remove_node(more, allow_graceful=False)  # kills its processes
    fit.join(timeout=120)
    assert found == [expected]


def test_results_warnings_and_errors_come_back(cluster: Any) -> None:
    executor = Ray(cluster.address)
    shared = executor.share(np.arange(10.0))
    work = partial(slow_square, shared)
    with pytest.warns(UserWarning, match="seven"):
        assert executor.map(work, [3, 7]) == [9.0, 49.0]
    with pytest.warns(UserWarning, match="seven"):
        total = executor.reduce(work, list(range(10)))
    with pytest.warns(UserWarning, match="seven"):
        assert total == Serial().reduce(
            partial(slow_square, Serial().share(np.arange(10.0))), range(10)
        )
    with pytest.raises(IndexError, match="out of bounds"):
        executor.map(work, [3, 10])


def test_a_worker_that_is_killed_is_replaced(cluster: Any, tmp_path: Path) -> None:
    from tests.ray_tasks import die_once

    items = [(str(tmp_path / str(number)), number) for number in range(4)]
    assert Ray(cluster.address).map(die_once, items) == [0, 1, 2, 3]


def test_the_automatic_learner_runs_its_tries_on_the_cluster(cluster: Any) -> None:
    rng = np.random.default_rng(1)
    sequences = [rng.integers(0, 2, (6, 3)).astype(float) for _ in range(60)]

    def learned(executor: Any) -> bytes:
        own = dspn.DSPN(dspn.Auto(effort=0.2), random_state=0, executor=executor)
        return own.fit(sequences).mixture_.fingerprint

    assert learned(Ray(cluster.address)) == learned(Serial())


@pytest.mark.filterwarnings("ignore:::ray")
def test_a_ray_dataset_becomes_shards(cluster: Any, tmp_path: Path) -> None:
    Ray(cluster.address).map(len, ["a"])  # connects
    rng = np.random.default_rng(2)
    table = pa.table(
        {
            "id": np.repeat(np.arange(20), 6),
            "t": np.tile(np.arange(6), 20),
            "bit": rng.integers(0, 2, 120),
            "value": rng.normal(size=120),
        }
    )
    found = prepare(
        ray.data.from_arrow(table), tmp_path / "shards", sequence="id", order="t", shard_slices=50
    )
    expected = dspn.Sequences.from_table(table, sequence="id", order="t")
    assert found.schema == expected.schema
    chunks = [shard.chunk(found.keys)[1] for shard in found.shards]
    rows = {own: values for chunk in chunks for own, values in zip(chunk.ids, chunk, strict=True)}
    for own, values in zip(expected.ids, expected, strict=True):
        np.testing.assert_array_equal(rows[own], values)
