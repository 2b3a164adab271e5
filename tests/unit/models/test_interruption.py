"""Ctrl-C during expectation maximisation leaves the best model so far."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dspn import DSPN, HMM, DSPNClassifier, Em
from dspn.cli.app import run
from dspn.errors import ConvergenceWarning
from dspn.learning import em
from dspn.models import training

RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(12, 6, 2))


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The third step of the first fit is interrupted."""
    plain: Any = em._maximise_all
    steps = iter(range(1000))

    def maximise(*given: Any) -> Any:
        if next(steps) == 2:
            raise KeyboardInterrupt
        return plain(*given)

    monkeypatch.setattr(em, "_maximise_all", maximise)


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("estimator", [HMM((2, 3)), DSPN(Em(2))])
def test_a_fit_that_is_interrupted_keeps_the_best_so_far(estimator: Any) -> None:
    with pytest.warns(ConvergenceWarning, match="interrupted after"):
        estimator.set_params(random_state=0).fit(DATA)
    assert estimator.ending_ == "interrupted"
    assert np.isfinite(estimator.score(DATA))


@pytest.mark.usefixtures("interrupted")
@pytest.mark.filterwarnings("ignore")
def test_a_classifier_that_is_interrupted_has_a_model_for_every_class(tmp_path: Path) -> None:
    labels = np.arange(12) % 3
    found = DSPNClassifier(HMM(2), random_state=0).fit(DATA, labels)
    assert found.ending_ == "interrupted" and len(found.models_) == 3
    np.testing.assert_allclose(found.predict_proba(DATA).sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.usefixtures("interrupted")
def test_the_command_writes_what_there_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, output = tmp_path / "x.csv", tmp_path / "x.dspn"
    rows = (
        f"{i},{'ab'[i % 2]},{value:.3f}\n" for i in range(12) for value in DATA[i, :, 0].tolist()
    )
    table.write_text("id,who,x\n" + "".join(rows))
    words = ["classify", "fit", str(table), "-s", "id", "--label", "who", "--states", "2"]
    assert run([*words, "-q", "-o", str(output)]) == 130
    assert "the best models so far are in" in capsys.readouterr().err
    assert output.exists()


def test_ctrl_c_while_a_model_is_trained_on_all_data_keeps_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    rng = np.random.default_rng(0)
    data = [rng.normal(size=(20, 2)) for _ in range(12)]
    monkeypatch.setattr(training, "fit_em", interrupted)
    model = HMM(2, random_state=0, validation_fraction=0.3).fit(data)
    assert model.ending_ == "interrupted"
    assert np.isfinite(model.score_samples(data)).all()
