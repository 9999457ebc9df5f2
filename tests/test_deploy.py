"""The files in deploy/: they are consistent, and the gateway accepts its configuration."""

from __future__ import annotations

import json
import re
import shlex
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from toolspeak.cli import main

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PORT = 7878
USER = 10001


def load_manifests() -> dict[tuple[str, str], Any]:
    """Return all objects of the manifests by kind and name."""
    objects = [each for path in MANIFESTS for each in yaml.safe_load_all(path.read_text())]
    return {(each["kind"], each.get("metadata", {}).get("name", "")): each for each in objects}


def test_deployed_configuration_with_keys_is_valid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "s3cret")
    command = ["check", "--json", "--config", str(DEPLOY / "toolspeak.toml")]
    monkeypatch.delenv("TOOLSPEAK_KEYS", raising=False)
    assert main(command) == 1, "other machines can reach it"
    assert "clients need keys" in capsys.readouterr().out
    monkeypatch.setenv("TOOLSPEAK_KEYS", "k")
    assert main(command) == 0
    output = capsys.readouterr().out
    result = json.loads(output)
    assert result["warnings"] == []
    assert (result["config"]["server"]["host"], result["config"]["server"]["port"]) == (
        "0.0.0.0",
        PORT,
    )
    assert "s3cret" not in output
    # Compose sets it to an empty text by default.
    monkeypatch.setenv("TOOLSPEAK_ADMIN_KEY", "")
    assert main(command) == 0
    assert not json.loads(capsys.readouterr().out)["config"]["server"]["admin_key"]


def test_deployed_configuration_with_optional_parts_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DEPLOY / "toolspeak.toml").read_text()
    lines = re.sub(r"^# (\[|\w+ = )", r"\1", text, flags=re.M)
    config = tmp_path / "toolspeak.toml"
    config.write_text(lines)
    for name in ("REDIS_PASSWORD", "TOOLSPEAK_KEYS", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(name, "k")
    assert main(["check", "--json", "--config", str(config)]) == 0
    config_shown = json.loads(capsys.readouterr().out)["config"]
    assert set(config_shown["upstreams"]) == {"models", "openrouter"}


# Docker and Compose.


def test_image_has_a_user_and_copies_existing_files() -> None:
    assert f"USER {USER}:{USER}" in DOCKERFILE
    assert "TOOLSPEAK_HOST=0.0.0.0" in DOCKERFILE
    assert f"EXPOSE {PORT}" in DOCKERFILE
    for name in ("gateway.txt", "model.txt", "build.txt"):
        assert f"-r requirements/{name}" in DOCKERFILE
    assert "[gateway,local,otel]" in DOCKERFILE, "`telemetry.otlp_endpoint` may be set"
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [
        name
        for line in re.findall(r"^COPY (?!--)(.*)$", DOCKERFILE, re.M)
        for name in shlex.split(line)[:-1]
    ]
    assert sorted(copied) == sorted(line[1:] for line in ignored if line.startswith("!"))
    assert all((ROOT / name).exists() for name in copied)


def test_images_are_named_by_exact_tags_or_digests() -> None:
    texts = [DOCKERFILE, *(path.read_text() for path in (DEPLOY / "compose.yaml", *MANIFESTS))]
    names = re.findall(r"^(?:FROM| *image:) (\S+)", "\n".join(texts), re.M)
    others = {name for name in names if not name.startswith("toolspeak")}
    assert len(others) == 2, "one version of Python, and one of Redis"
    for name in others:
        assert re.search(r":\d+\.\d+\.\d+-|@sha256:[0-9a-f]{64}$", name), name


def test_image_installs_packages_only_by_hash() -> None:
    commands = DOCKERFILE.replace("\\\n", " ").replace("&&", "\n").splitlines()
    installs = [line for line in commands if "pip install" in line]
    assert len(installs) == 3
    for line in installs:
        assert "--no-deps" in line
        assert "--require-hashes" in line or line.endswith(".whl"), line


def test_health_check_is_valid_python() -> None:
    found = re.search(r"HEALTHCHECK .*?CMD (\[.*?\])$", DOCKERFILE, re.M | re.S)
    assert found
    python, option, code = json.loads(found[1])
    assert (python, option) == ("python", "-c")
    compile(code, "Dockerfile", "exec")
    assert "/health" in code


def test_compose_requires_secrets_and_publishes_locally() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    gateway, redis = compose["services"]["gateway"], compose["services"]["redis"]
    assert gateway["deploy"]["replicas"] == 2
    assert gateway["depends_on"] == {"redis": {"condition": "service_healthy"}}
    assert redis["healthcheck"]["test"]
    for variable in ("TOOLSPEAK_KEYS", "REDIS_PASSWORD"):
        assert gateway["environment"][variable].startswith(f"${{{variable}:?"), "it has no default"
    assert gateway["environment"]["TOOLSPEAK_ADMIN_KEY"] == "${TOOLSPEAK_ADMIN_KEY:-}", "it is off"
    assert all(port.startswith("127.0.0.1:") for port in gateway["ports"])
    [config] = gateway["configs"]
    assert (DEPLOY / compose["configs"][config["source"]]["file"]).exists()
    assert (DEPLOY / gateway["build"] / "Dockerfile").exists()


# Kubernetes.


def test_kustomization_lists_every_manifest() -> None:
    listed = set(load_manifests()["Kustomization", ""]["resources"])
    names = {path.name for path in MANIFESTS}
    assert listed == names - {"kustomization.yaml", "secret.example.yaml"}


def test_config_map_equals_the_configuration_file() -> None:
    config = load_manifests()["ConfigMap", "toolspeak"]["data"]["toolspeak.toml"]
    assert config == (DEPLOY / "toolspeak.toml").read_text()


def test_gateway_deployment_has_probes_and_secrets() -> None:
    found = load_manifests()
    deployment = found["Deployment", "toolspeak"]["spec"]
    pod = deployment["template"]["spec"]
    [container] = pod["containers"]
    assert deployment["replicas"] == 2
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"
    assert container["readinessProbe"]["httpGet"]["path"] == "/ready"
    assert container["ports"] == [{"name": "http", "containerPort": PORT}]
    # A Service of this name would set TOOLSPEAK_PORT to a URL.
    assert pod["enableServiceLinks"] is False
    secret = found["Secret", container["envFrom"][0]["secretRef"]["name"]]
    secrets = secret["stringData"]
    assert set(secrets) == {"TOOLSPEAK_KEYS", "TOOLSPEAK_ADMIN_KEY", "REDIS_PASSWORD"}
    assert secrets["TOOLSPEAK_ADMIN_KEY"] not in secrets["TOOLSPEAK_KEYS"].split(",")
    assert pod["securityContext"]["runAsUser"] == USER


@pytest.mark.parametrize("name", ["toolspeak", "redis"])
def test_deployment_has_minimal_privileges(name: str) -> None:
    found = load_manifests()
    spec = found["Deployment", name]["spec"]
    pod, labels = spec["template"]["spec"], spec["template"]["metadata"]["labels"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} <= set(container["resources"])
    assert spec["selector"]["matchLabels"] == labels
    service = found["Service", name]["spec"]
    assert service["selector"] == labels
    ports = {port["name"] for port in container["ports"]}
    assert {port["targetPort"] for port in service["ports"]} <= ports
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes


def test_disruption_budget_keeps_one_gateway() -> None:
    found = load_manifests()
    budget = found["PodDisruptionBudget", "toolspeak"]["spec"]
    assert budget["minAvailable"] == 1
    assert budget["selector"] == found["Deployment", "toolspeak"]["spec"]["selector"]


# The network.


def find_policy(name: str) -> Any:
    """Return a network policy; it selects the pods of the deployment of that name."""
    found = load_manifests()
    policy = found["NetworkPolicy", name]["spec"]
    assert policy["podSelector"] == found["Deployment", name]["spec"]["selector"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    return policy


def test_network_policy_of_the_gateway_allows_its_port_only() -> None:
    assert find_policy("toolspeak")["ingress"] == [{"ports": [{"protocol": "TCP", "port": "http"}]}]


def test_network_policy_of_the_gateway_allows_names_redis_and_providers() -> None:
    names, store, providers = find_policy("toolspeak")["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert {port["protocol"] for port in names["ports"]} == {"UDP", "TCP"}
    redis = load_manifests()["Deployment", "redis"]["spec"]
    [container] = redis["template"]["spec"]["containers"]
    assert store["to"] == [{"podSelector": redis["selector"]}]
    assert [port["port"] for port in store["ports"]] == [container["ports"][0]["containerPort"]]
    assert providers["ports"] == [{"protocol": "TCP", "port": 443}]


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("10.1.2.3", False),
        ("172.20.0.1", False),
        ("192.168.0.1", False),
        ("100.100.100.200", False),
        ("169.254.169.254", False),
        ("127.0.0.1", False),
        ("fd00:ec2::254", False),
        ("fe80::1", False),
        ("::ffff:169.254.169.254", False),
    ],
)
def test_network_policy_of_the_gateway_allows_public_addresses_only(
    address: str, is_allowed: bool
) -> None:
    blocks = [each["ipBlock"] for each in find_policy("toolspeak")["egress"][2]["to"]]
    assert all(
        ip_network(inner).subnet_of(ip_network(block["cidr"]))  # pyright: ignore[reportArgumentType]
        for block in blocks
        for inner in block["except"]
    )
    target = ip_address(address)
    found = any(
        target in ip_network(block["cidr"])
        and not any(target in ip_network(inner) for inner in block["except"])
        for block in blocks
    )
    assert found is is_allowed


def test_network_policy_of_redis_allows_gateways_only() -> None:
    policy = find_policy("redis")
    [rule] = policy["ingress"]
    gateway = load_manifests()["Deployment", "toolspeak"]["spec"]["selector"]
    assert rule == {
        "from": [{"podSelector": gateway}],
        "ports": [{"protocol": "TCP", "port": "redis"}],
    }
    assert policy["egress"] == []
