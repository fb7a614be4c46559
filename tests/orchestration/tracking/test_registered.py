"""Policies as models of a real MLflow store: registered once, found by name and version, with the same result on another machine."""

import mlflow
import pytest

from envs.problem.errors import InputError
from orchestration.commands.place import place_by_policy
from orchestration.definition.sweep import load_sweep
from orchestration.driver.run_sweep import run_sweep
from orchestration.folder.ledger import entries
from orchestration.specs.policies import read_policy
from orchestration.tracking.store_checks import default_uri
from tests.orchestration.driver.test_driver import no_plots, quiet  # noqa: F401
from tests.orchestration.specs.test_policies import FIRST, PROBLEMS, THEN

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("toy_methods", "no_plots")]


def test_a_registered_policy_starts_stages_and_places(tmp_path):
    (tmp_path / "first.yaml").write_text(FIRST)
    out, uri = tmp_path / "out", default_uri(tmp_path / "out")
    for _ in range(2):  # run again, nothing is registered twice
        run_sweep(load_sweep(tmp_path / "first.yaml"), local=True, output=out, console=quiet())
    client = mlflow.MlflowClient(uri)
    (version,) = client.search_model_versions("name='first-toy'")
    ((trial, _),) = entries(out / "first")
    assert int(version.version) == 1 and version.tags["trial"] == trial.content_hash and version.tags["stage"] == "pretrain"
    logged = client.search_logged_models([e.experiment_id for e in client.search_experiments()])
    assert [m.source_run_id for m in logged if m.artifact_location == version.source] == [version.run_id]  # it keeps no id of the model
    policy = read_policy("models:/first-toy/1", store=uri)
    assert policy == read_policy(str(out / "first" / "trials" / trial.content_hash[:32])).__class__(
        policy.name, "toy-learner", trial.config, policy.data
    )
    (tmp_path / "then.yaml").write_text(THEN.replace("POLICY", "models:/first-toy/1") + PROBLEMS)
    ran = run_sweep(load_sweep(tmp_path / "then.yaml", store=uri), local=True, output=tmp_path / "other", console=quiet())
    assert (ran.finished, ran.failed) == (4, 0)
    trial, result = next((t, r) for t, r in entries(ran.folder) if t.stage == "zero-shot")
    placed = place_by_policy(trial.problems[0], policy)
    assert (placed.found if placed.kept else placed.objective) == result.problems[0].objective
    for name, other in (("models:/first-toy/2", "models:/first-toy/1"), ("models:/first/1", "first-toy")):
        with pytest.raises(InputError, match=f"there is no model '{name}' .*known are {other}"):
            read_policy(name, store=uri)
