"""The deployment files, against schemas and against the commands that they call; nothing here needs Docker or Kubernetes."""

import base64
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

from orchestration.rewards.kinds import EVALUATORS
from tests.orchestration.ray_cluster import free_port

ROOT = Path(__file__).resolve().parents[1]
INFRA = ROOT / "infra"
SCHEMAS = Path(__file__).parent / "infra_schemas"
BIN = Path(sys.executable).parent


def documents(name):
    return list(yaml.safe_load_all((INFRA / name).read_text()))


def schema(name):
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def errors(document, name):
    found = jsonschema.Draft202012Validator(schema(name)).iter_errors(document)
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message}" for e in found]


def help_of(*command):
    done = subprocess.run([str(BIN / command[0]), *command[1:], "--help"], capture_output=True, text=True, timeout=500, check=True)
    return done.stdout


# Compose


def test_compose_file_has_only_what_the_specification_knows():
    (alone,), (team,) = documents("compose.yaml"), documents("compose.team.yaml")
    services = {name: {**alone["services"].get(name, {}), **service} for name, service in team["services"].items()}
    assert errors(alone, "compose") == []
    assert errors({**alone, "services": {**alone["services"], **services}}, "compose") == []


def test_what_services_refer_to_is_declared():
    (compose,) = documents("compose.yaml")
    named = {v.split(":")[0] for s in compose["services"].values() for v in s["volumes"]}
    assert named == set(compose["volumes"])
    for service in compose["services"].values():
        assert set(service.get("depends_on", {})) <= set(compose["services"])
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in compose["services"][other]
    build = compose["services"]["mlflow"]["build"]
    assert (INFRA / build["context"]).resolve() == ROOT and (ROOT / build["dockerfile"]).is_file()


def interpolated(text, values):
    """As Compose does it; KeyError for a variable that has no value and no default."""

    def replaced(match):
        name, operator, rest = match.group(1), match.group(2), match.group(3)
        if values.get(name):
            return values[name]
        if operator == ":-":
            return rest
        raise KeyError(f"{name}: {rest}")

    return re.sub(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}", replaced, text)


def test_compose_refuses_to_start_without_a_password_and_a_host():
    text = (INFRA / "compose.yaml").read_text()
    for missing in ("MLFLOW_DB_PASSWORD", "MLFLOW_HOST"):
        values = {"MLFLOW_DB_PASSWORD": "secret", "MLFLOW_HOST": "tracking.example.org", missing: ""}
        with pytest.raises(KeyError, match=missing):
            interpolated(text, values)


def mlflow_command():
    text = interpolated((INFRA / "compose.yaml").read_text(), {"MLFLOW_DB_PASSWORD": "secret", "MLFLOW_HOST": "tracking.example.org"})
    return yaml.safe_load(text)["services"]["mlflow"]["command"]


@pytest.mark.slow
def test_the_mlflow_of_the_image_knows_the_options_of_its_service():
    command = mlflow_command()
    known = help_of(*command[:2])
    for option in command[2:]:
        assert re.search(rf"{option.split('=')[0]}\b", known), option


@pytest.mark.thorough
def test_the_server_listens_to_its_names_and_to_no_others():
    from mlflow.server.security_utils import is_allowed_host_header

    allowed = next(o for o in mlflow_command() if o.startswith("--allowed-hosts=")).split("=", 1)[1].split(",")
    for host in ("tracking.example.org", "tracking.example.org:5000", "mlflow:5000", "localhost:5000", "127.0.0.1:5000"):
        assert is_allowed_host_header(allowed, host)
    assert not is_allowed_host_header(allowed, "evil.example.org:5000")


def test_the_password_is_on_no_command_line_and_in_no_file():
    assert "secret" not in " ".join(mlflow_command())
    (compose,) = documents("compose.yaml")
    for service in compose["services"].values():
        for key, value in service["environment"].items():
            assert "PASSWORD" not in key or value.startswith("${MLFLOW_DB_PASSWORD:?")
    assert ".env" in (ROOT / ".gitignore").read_text().split()


# Ray's cluster launcher


def test_ray_takes_its_cluster_file():
    from ray.autoscaler._private.local.config import prepare_local
    from ray.autoscaler._private.util import validate_config

    (cluster,) = documents("ray-cluster.yaml")
    filled, complete = prepare_local(cluster)
    assert complete
    validate_config(filled)
    for misspelt in ("max_worker", "head_start_commands"):
        with pytest.raises(jsonschema.ValidationError):
            validate_config({**filled, misspelt: 2})


def test_cluster_file_counts_its_workers_and_asks_for_tokens():
    (cluster,) = documents("ray-cluster.yaml")
    assert cluster["min_workers"] == cluster["max_workers"] == len(cluster["provider"]["worker_ips"])
    assert "--env=RAY_AUTH_MODE=token" in cluster["docker"]["run_options"]
    assert any(path.endswith("/.ray/auth_token") for path in cluster["file_mounts"])


@pytest.mark.slow
def test_ray_knows_the_options_that_start_the_cluster():
    (cluster,) = documents("ray-cluster.yaml")
    known = help_of("ray", "start")
    commands = [shlex.split(c) for c in cluster["head_start_ray_commands"] + cluster["worker_start_ray_commands"]]
    for _, verb, *options in commands:
        assert verb in ("start", "stop")
        for option in options:
            assert re.search(rf"{option.split('=')[0]}\b", known), option


# KubeRay


def pods(job):
    """Every pod of the job: the submitter's, the head's and the workers'."""
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [job["spec"]["submitterPodTemplate"], *(group["template"] for group in groups)]


def test_kubernetes_manifests_match_their_schemas():
    claim, job = documents("kubernetes/sweep/rayjob.yaml")
    (policy,) = documents("kubernetes/sweep/network-policy.yaml")
    assert errors(job, "rayjob") == []
    release = kubernetes_validate.latest_version()
    templates = [
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "one"}, "template": {"metadata": {}, **template}}
        for template in pods(job)
    ]
    for document in (claim, policy, *templates):
        kubernetes_validate.validate(document, release, strict=True)
    templates[1]["template"]["spec"]["containers"][0]["securityContex"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(templates[1], release, strict=True)


def test_no_container_may_gain_privileges():
    _, job = documents("kubernetes/sweep/rayjob.yaml")
    options = job["spec"]["rayClusterSpec"]["autoscalerOptions"]
    contexts = [options["securityContext"], *(c["securityContext"] for p in pods(job) for c in p["spec"]["containers"])]
    assert len(contexts) == 4
    assert all(c == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}} for c in contexts)
    for pod in pods(job):
        context = pod["spec"]["securityContext"]
        assert context["runAsNonRoot"] and context["runAsUser"] == 1000 and context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_only_the_autoscaler_has_a_token_of_kubernetes():
    _, job = documents("kubernetes/sweep/rayjob.yaml")
    assert all(pod["spec"]["automountServiceAccountToken"] is False for pod in pods(job))
    head = pods(job)[1]["spec"]
    tokens = {v["name"] for v in head["volumes"] if "serviceAccountToken" in str(v)}
    assert tokens and not any(m["name"] in tokens for c in head["containers"] for m in c["volumeMounts"])
    assert tokens == {m["name"] for m in job["spec"]["rayClusterSpec"]["autoscalerOptions"]["volumeMounts"]}


def test_pods_are_reached_by_their_own_kind_alone():
    _, job = documents("kubernetes/sweep/rayjob.yaml")
    (policy,) = documents("kubernetes/sweep/network-policy.yaml")
    own = policy["spec"]["podSelector"]["matchLabels"]
    assert all(own.items() <= pod["metadata"]["labels"].items() for pod in pods(job))
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    ports = [(peer["podSelector"]["matchLabels"], rule.get("ports")) for rule in policy["spec"]["ingress"] for peer in rule["from"]]
    assert [labels for labels, open_ in ports if open_ is None] == [own], "every port is open to pods of the same sweep, and to no others"


def test_a_cluster_that_may_grow_does():
    _, job = documents("kubernetes/sweep/rayjob.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["enableInTreeAutoscaling"] or all(g["minReplicas"] == g["maxReplicas"] for g in cluster["workerGroupSpecs"])


def test_images_are_named_by_digest():
    _, job = documents("kubernetes/sweep/rayjob.yaml")
    (compose,) = documents("compose.yaml")
    (base,) = [rest for word, rest in instructions() if word == "FROM"]
    named = [c["image"] for p in pods(job) for c in p["spec"]["containers"]]
    named += [base, *(s["image"] for s in compose["services"].values() if "build" not in s)]
    assert len(named) == 5
    assert [image for image in named if not re.search(r"@sha256:[0-9a-f]{64}$", image)] == []


def test_a_team_s_mlflow_has_what_the_other_has_and_more():
    (alone,), (team,) = documents("compose.yaml"), documents("compose.team.yaml")
    options = {o.split("=")[0] for o in alone["services"]["mlflow"]["command"]}
    assert options | {"--app-name"} == {o.split("=")[0] for o in team["services"]["mlflow"]["command"]}
    backup = team["services"]["backup"]
    assert backup["image"] == alone["services"]["database"]["image"], "pg_dump is not older than the database"
    assert backup["cap_drop"] == ["ALL"] and "no-new-privileges:true" in backup["security_opt"]
    for service in team["services"].values():
        for key, value in service.get("environment", {}).items():
            assert not re.search("PASSWORD|SECRET", key) or re.match(r"\$\{\w+:\?", value)
    source = team["services"]["mlflow"]["volumes"][0].split(":")[0]
    assert (INFRA / source).is_file() and "mlflow-database" in team["services"]["database"]["networks"]["default"]["aliases"]
    assert "mlflow@mlflow-database/" in (INFRA / source).read_text()


def test_containers_of_compose_may_not_gain_privileges():
    (compose,) = documents("compose.yaml")
    for service in compose["services"].values():
        assert service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("spec", "submissionMode"), "K8sJob", "submissionMode"),
        (("spec", "rayClusterSpec", "authOptions", "mode"), "tokens", "authOptions"),
        (("spec", "ttlSeconds"), 5, "ttlSeconds"),
        (("spec", "rayClusterSpec", "headGroupSpec", "rayStartParams"), {"num-cpus": 0}, "num-cpus"),
        (("spec", "rayClusterSpec", "autoscalerOptions", "idleTimeout"), 5, "idleTimeout"),
    ],
)
def test_the_schema_finds_mistakes(path, value, expected):
    _, job = documents("kubernetes/sweep/rayjob.yaml")
    inner = job
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert any(expected in line for line in errors(job, "rayjob"))


def test_pods_mount_what_is_declared_and_run_the_pinned_ray():
    claim, job = documents("kubernetes/sweep/rayjob.yaml")
    cluster = job["spec"]["rayClusterSpec"]
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    assert cluster["rayVersion"] == pins["ray"] and cluster["authOptions"]["mode"] == "token"
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        declared = {v["name"] for v in pod["volumes"]}
        assert claim["metadata"]["name"] in {v.get("persistentVolumeClaim", {}).get("claimName") for v in pod["volumes"]}
        for container in pod["containers"]:
            assert {m["name"] for m in container["volumeMounts"]} == declared - {"kubernetes"}
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_the_jobs_entrypoint_is_a_command_that_parses():
    from orchestration.cli.main import make_parser

    _, job = documents("kubernetes/sweep/rayjob.yaml")
    program, *words = shlex.split(job["spec"]["entrypoint"])
    args = make_parser().parse_args(words)
    mounts = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    folders = [m["mountPath"] for m in mounts if not m.get("readOnly")]
    assert program == "placewright" and args.address == "auto" and str(args.output) in folders


# Kustomize

OVERLAYS = ("sweep", "gpu", "measuring", "mlflow")


@pytest.fixture
def kustomized(tmp_path):
    """What an overlay makes, as kubectl does it."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not here")
    shutil.copytree(INFRA / "kubernetes", tmp_path / "kubernetes")
    mlflow = tmp_path / "kubernetes" / "mlflow"
    (mlflow / "secret.env").write_text((mlflow / "secret.env.example").read_text().replace("=\n", "=secret\n"))

    def build(overlay):
        command = ["kubectl", "kustomize", str(tmp_path / "kubernetes" / overlay)]
        return list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout))

    return build


def templates(documents):
    """The template of every pod among Kubernetes' own kinds."""
    for document in documents:
        spec = document.get("spec", {})
        if document["kind"] == "RayJob":
            yield from pods(document)
        elif document["kind"] == "CronJob":
            yield spec["jobTemplate"]["spec"]["template"]
        elif "template" in spec:
            yield spec["template"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlays_make_what_kubernetes_takes(kustomized, overlay):
    release, made = kubernetes_validate.latest_version(), kustomized(overlay)
    for document in made:
        if document["kind"] == "RayJob":
            assert errors(document, "rayjob") == []
        else:
            kubernetes_validate.validate(document, release, strict=True)
    for template in templates(made):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "one"}, "template": {"metadata": {}, **template}}
        kubernetes_validate.validate(pod, release, strict=True)
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False and spec["securityContext"]["runAsNonRoot"]
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
            assert re.search(r"@sha256:[0-9a-f]{64}$", container["image"]) and container["resources"]["limits"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_pods_of_overlays_refer_to_is_there(kustomized, overlay):
    made = kustomized(overlay)
    there = {(d["kind"], d["metadata"]["name"]) for d in made} | {("ConfigMap", "placewright-sweep")}
    keys = {d["metadata"]["name"]: {**d.get("data", {})} for d in made if d["kind"] in ("Secret", "ConfigMap")}
    for template in templates(made):
        spec = template["spec"]
        for volume in spec.get("volumes", ()):
            for kind, name in (("PersistentVolumeClaim", "persistentVolumeClaim"), ("ConfigMap", "configMap")):
                if name in volume:
                    assert (kind, volume[name].get("claimName") or volume[name]["name"]) in there
        for container in spec["containers"]:
            for variable in container.get("env", ()):
                if "valueFrom" in variable:
                    reference = variable["valueFrom"]["secretKeyRef"]
                    assert reference["key"] in keys[reference["name"]]
            for word in re.findall(r"\$\((\w+)\)", " ".join(container.get("command", ()))):
                if "envFrom" in container:
                    assert word in keys[container["envFrom"][0]["configMapRef"]["name"]]


def test_groups_of_machines_have_the_devices_that_ray_is_told_of(kustomized):
    def group(overlay, name):
        (job,) = (d for d in kustomized(overlay) if d["kind"] == "RayJob")
        return next(g for g in job["spec"]["rayClusterSpec"]["workerGroupSpecs"] if g["groupName"] == name)

    gpu, measuring = group("gpu", "gpu"), group("measuring", "measuring")
    limits = [g["template"]["spec"]["containers"][0]["resources"] for g in (gpu, measuring)]
    assert limits[0]["limits"]["nvidia.com/gpu"] == gpu["rayStartParams"]["num-gpus"]
    assert limits[1]["limits"] == limits[1]["requests"] and limits[1]["limits"]["cpu"].isdigit(), "CPUs that can be pinned"
    kind, _, host = next(iter(json.loads(json.loads(measuring["rayStartParams"]["resources"])))).partition(":")
    assert kind in EVALUATORS and EVALUATORS[kind].real and host
    labels = measuring["template"]["metadata"]["labels"]
    (term,) = measuring["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"].items() <= labels.items(), "two never share a machine"


@pytest.mark.slow
def test_the_mlflow_of_the_team_asks_for_passwords(kustomized, tmp_path, monkeypatch):
    """The server's command and file as the overlay has them, on SQLite and a folder in place of PostgreSQL and a bucket."""
    (config,) = (d for d in kustomized("mlflow") if d["kind"] == "ConfigMap")
    (deployment,) = (d for d in kustomized("mlflow") if d["kind"] == "Deployment")
    ini = tmp_path / "basic_auth.ini"
    ini.write_text(
        config["data"]["basic_auth.ini"].replace("postgresql+psycopg://mlflow@mlflow-database/mlflow", f"sqlite:///{tmp_path}/auth.db")
    )
    port = free_port()
    changed = {
        "--host": "127.0.0.1", "--port": str(port), "--workers": "1", "--backend-store-uri": f"sqlite:///{tmp_path}/runs.db",
        "--artifacts-destination": str(tmp_path / "artifacts"), "--allowed-hosts": f"localhost:{port}",
    }  # fmt: skip
    words = deployment["spec"]["template"]["spec"]["containers"][0]["command"]
    command = [f"{w.split('=')[0]}={changed[w.split('=')[0]]}" if w.split("=")[0] in changed else w for w in words]
    environment = {
        **os.environ, "MLFLOW_AUTH_CONFIG_PATH": str(ini), "MLFLOW_AUTH_ADMIN_USERNAME": "admin",
        "MLFLOW_AUTH_ADMIN_PASSWORD": "a long password", "MLFLOW_FLASK_SERVER_SECRET_KEY": "x" * 32,
    }  # fmt: skip
    server = subprocess.Popen([str(BIN / command[0]), *command[1:]], env=environment, cwd=tmp_path)

    def status(path, password=None):
        request = urllib.request.Request(f"http://localhost:{port}{path}")
        if password:
            request.add_header("Authorization", "Basic " + base64.b64encode(f"admin:{password}".encode()).decode())
        try:
            return urllib.request.urlopen(request, timeout=10).status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    try:
        deadline = time.monotonic() + 240
        while status("/health") != 200 and time.monotonic() < deadline and server.poll() is None:
            time.sleep(0.5)
        path = "/api/2.0/mlflow/experiments/get?experiment_id=0"
        assert [status("/health"), status(path), status(path, "wrong"), status(path, "a long password")] == [200, 401, 401, 200]
    finally:
        server.terminate()
        server.wait(30)


# Dockerfile


def instructions():
    text = re.sub(r"\\\n", " ", (INFRA / "Dockerfile").read_text())
    return [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]


def test_dockerfile_copies_only_what_is_there_and_let_through():
    ignored = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in ignored
    for word, rest in instructions():
        assert word in {"FROM", "RUN", "WORKDIR", "ARG", "COPY", "ENV", "VOLUME", "USER", "CMD"}
        if word == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists() and f"!{source}" in ignored, source


def locked(file):
    """Version and number of hashes of every package in a lock file."""
    entries = re.split(r"\n(?=\w)", (INFRA / "locks" / file).read_text().strip())
    return {e.split("==")[0]: (e.split("==")[1].split()[0], e.count("--hash=sha256:")) for e in entries}


def test_the_image_installs_what_was_tested_and_checks_every_file():
    (run,) = [rest for word, rest in instructions() if word == "RUN" and "--require-hashes" in rest]
    assert "--no-deps" in run.split()
    common, cuda, cpu = (locked(f) for f in ("requirements.txt", "torch-cuda.txt", "torch-cpu.txt"))
    assert all(hashes for lock in (common, cuda, cpu) for _, hashes in lock.values())
    canonical = {
        re.sub(r"[-_.]+", "-", name).lower(): v for name, v in (s.split("==") for s in (ROOT / "constraints.txt").read_text().split())
    }
    everything = {**common, **cuda}
    assert {n: v for n, (v, _) in everything.items() if canonical.get(n, v) != v} == {}, "run make lock"
    assert cpu["torch"][0].split("+")[0] == cuda["torch"][0] == canonical["torch"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *extras["postgres"], *extras["s3"], *extras["auth"]]
    names = {re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9_.-]", d)[0]).lower() for d in needed}
    assert names - everything.keys() == set(), "run make lock"


def test_the_image_runs_without_root_and_with_tokens():
    words = [word for word, _ in instructions()]
    assert words.index("USER") > max(i for i, word in enumerate(words) if word == "RUN")
    (settings,) = [rest for word, rest in instructions() if word == "ENV"]
    assert "RAY_AUTH_MODE=token" in settings.split()


# Guide


def test_files_named_in_the_guide_exist():
    text = (INFRA / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (INFRA / target).exists(), target
    for name in re.findall(r"infra/[\w.-]+\w", text):
        assert (ROOT / name).exists() or name == "infra/.env", name
