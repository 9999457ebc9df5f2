"""The lock files and the list of packages (SBOM), without a network."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deploy.sbom import EXTRAS, MODEL, make_sbom
from msgspec import Struct
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
_PIN = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9-]*)==(?P<version>[0-9][0-9a-z.+!]*)(?: ; (?P<marker>[^\\\n]+?))?"
    r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n"
)


class Pin(Struct, frozen=True):
    name: str
    version: str
    marker: str = ""

    def is_for(self, **environment: str) -> bool:
        return not self.marker or Marker(self.marker).evaluate(dict(environment))


def read_lock(path: Path) -> list[Pin]:
    return [
        Pin(found["name"], found["version"], found["marker"] or "")
        for found in _PIN.finditer(path.read_text("ascii"))
    ]


def list_requirements(*extras: str) -> Iterator[Requirement]:
    """Yield the requirements of pyproject.toml, with those of these extras."""
    project = PROJECT["project"]
    lines = [*project["dependencies"]]
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return map(Requirement, lines)


# Lock files.


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_lock_file_contains_only_names_versions_and_hashes(path: Path) -> None:
    """No index, no URL, no path of the machine on which it was written."""
    assert _PIN.sub("", path.read_text("ascii")) == ""
    assert read_lock(path)


@pytest.mark.parametrize("python", ["3.11.3", "3.12.0", "3.13.0"])
@pytest.mark.parametrize(
    ("name", "extras"),
    [
        ("dev.txt", ("dev", "gateway", "local", "agent")),
        ("gateway.txt", ("gateway", "local", "otel")),
    ],
)
@pytest.mark.parametrize("system", ["linux", "darwin", "win32"])
def test_lock_file_pins_every_dependency_of_its_extras(
    name: str, extras: tuple[str, ...], python: str, system: str
) -> None:
    environment = {"python_full_version": python, "sys_platform": system}
    pins = [pin for pin in read_lock(ROOT / "requirements" / name) if pin.is_for(**environment)]
    versions = {pin.name: pin.version for pin in pins}
    assert len(versions) == len(pins), "one version of each package"
    for requirement in list_requirements(*extras):
        if requirement.marker and not requirement.marker.evaluate(dict(environment)):
            continue
        pinned = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(pinned, prereleases=True), requirement


def test_lock_files_agree_on_versions() -> None:
    versions: dict[tuple[str, str], str] = {}
    for path in LOCKS:
        for pin in read_lock(path):
            assert versions.setdefault((pin.name, pin.marker), pin.version) == pin.version, path


def test_build_packages_are_those_of_the_project() -> None:
    lines = (ROOT / "requirements" / "build.in").read_text().splitlines()
    names = [line for line in lines if not line.startswith("#")]
    assert set(PROJECT["build-system"]["requires"]) <= set(names)
    locked = {pin.name for pin in read_lock(ROOT / "requirements" / "build.txt")}
    assert set(names) <= locked


# Dependencies.


def test_imports_of_the_package_are_declared() -> None:
    """A package that another one happens to install may be gone tomorrow.

    `mcp` decides the versions of the packages in which its own interface is written.
    """
    of_mcp = {"anyio", "httpx2", "mcp_types", "pydantic"}
    modules = {"pyyaml": "yaml", "opentelemetry-sdk": "opentelemetry"}
    extras = PROJECT["project"]["optional-dependencies"].keys() - {"dev", "bench"}
    names = [canonicalize_name(each.name) for each in list_requirements(*sorted(extras))]
    declared = {modules.get(name, name.replace("-", "_")) for name in (*names, MODEL)}
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "toolspeak").rglob("*.py"))
    found = {*re.findall(r"^ *(?:import|from) ([a-z]\w*)", source, re.M)}
    found |= {name for name in declared if re.search(rf'"{name}["./]', source)}
    assert found - sys.stdlib_module_names - declared - of_mcp == {"toolspeak"}
    assert declared - found == {"opentelemetry_exporter_otlp_proto_http"}


# The SBOM.


def test_sbom_lists_all_runtime_dependencies() -> None:
    sbom = make_sbom()
    assert (sbom["bomFormat"], sbom["specVersion"]) == ("CycloneDX", "1.6")
    root = sbom["metadata"]["component"]
    assert root["name"] == "toolspeak"
    components: dict[str, Any] = {each["name"]: each for each in sbom["components"]}
    assert len(components) == len(sbom["components"])
    for requirement in list_requirements(*EXTRAS):
        if requirement.marker and not requirement.marker.evaluate():
            continue
        component = components[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(component["version"], prereleases=True), requirement
    # A dependency of a dependency, and nothing that only tests need.
    assert "pydantic-core" in components
    assert "pytest" not in components


def test_sbom_references_are_complete_and_reproducible() -> None:
    sbom = make_sbom()
    assert json.dumps(sbom) == json.dumps(make_sbom())
    references = [each["bom-ref"] for each in (sbom["metadata"]["component"], *sbom["components"])]
    assert len(references) == len({*references})
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9-]+@[\w.+!]+", each) for each in references)
    assert {each["ref"] for each in sbom["dependencies"]} == {*references}
    needed = {other for each in sbom["dependencies"] for other in each["dependsOn"]}
    assert needed == {*references} - {sbom["metadata"]["component"]["bom-ref"]}
