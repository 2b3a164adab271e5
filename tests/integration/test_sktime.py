"""The wrappers pass sktime's own checks of estimators; a few of them, chosen to be quick."""

import warnings

import pytest

pytest.importorskip("sktime", reason="sktime is not installed")

_CHECKS = [
    "test_constructor",
    "test_get_test_params",
    "test_fit_idempotent",
    "test_persistence_via_pickle",
    "test_predict_quantiles",
    "test_predict_residuals",
    "test_fit_transform_output",
    "test_classifier_output",
    "test_multivariate_input_exception",
]


@pytest.mark.parametrize("name", ["SequenceForecaster", "SequenceImputer", "SequenceClassifier"])
def test_sktime_accepts_the_wrapper(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sktime.utils.estimator_checks import check_estimator

        import dspn.sktime

        wrapper = getattr(dspn.sktime, name)
        found = check_estimator(wrapper, tests_to_run=_CHECKS, verbose=False)
    assert found
    assert {check: result for check, result in found.items() if result != "PASSED"} == {}
