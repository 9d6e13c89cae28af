"""The host of a Neuron engine: its installed packages, the pinned ones or placeholders, and its NeuronCores' names."""

import logging
from collections.abc import Callable
from importlib import metadata

_log = logging.getLogger(__name__)

SDK = "2.28"  # the last whose NxD Inference supports inf2 and trn1 (release notes 2.29, nxd-inference)
_NXDI = "neuronx-distributed-inference"
# Distribution -> how the pinned SDK's version of it begins (aws-neuron/deep-learning-containers, sdk2.28.0).
PINS = {
    _NXDI: "0.8.",
    "neuronx-distributed": "0.17.",
    "neuronx-cc": "2.23.",
    "torch-neuronx": "2.9.0.2.12.",
}
_PLACEHOLDER_WORDS = "wrong package"  # start of each placeholder's description (read in November 2026)

Metadata = Callable[[str], metadata.PackageMetadata]

VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"


class NeuronUnavailableError(RuntimeError):
    """Raised when Neuron packages are missing; the message says which, and where they come from."""


def installed_versions(read: Metadata = metadata.metadata) -> dict[str, str]:
    """Return each pinned distribution's version. Raises NeuronUnavailableError for missing ones and placeholders.

    A version other than the pinned one logs a warning: the parts that we rely on are checked where they are used.
    """
    versions: dict[str, str] = {}
    problems = []
    for name, pin in PINS.items():
        try:
            found = read(name)
        except metadata.PackageNotFoundError:
            problems.append(f"{name} is not installed")
            continue
        version, description = str(found["Version"]), str(found.json.get("description", "")).lower()
        if _PLACEHOLDER_WORDS in description:
            problems.append(f"{name} {version} is the public index's placeholder, not the package")
        elif not version.startswith(pin):
            _log.warning("%s %s is not of Neuron SDK %s (%sx)", name, version, SDK, pin)
        versions[name] = version
    if problems:
        raise NeuronUnavailableError(
            f"The Neuron engine needs Neuron SDK {SDK} (neuronx-distributed-inference {PINS[_NXDI]}x): "
            f"{'; '.join(problems)}. Run it in the SDK's own container (service/Dockerfile builds on it), or install "
            "the group `neuron` of pyproject.toml from AWS's Neuron package repository as the SDK's setup guide says: "
            "the public index has only placeholders under these names. Without a Neuron device: PEAKPLAN_ENGINE=torch."
        )
    return versions


def neuron_cores(number: int, cores: int) -> str:
    """Return the cores of a replica in the Neuron runtime's format: "2-3" are the second's of two cores each."""
    first, last = number * cores, (number + 1) * cores - 1
    return str(first) if first == last else f"{first}-{last}"


def core_count(visible_cores: str) -> int:
    """Return how many NeuronCores "0-1" or "2,3" names; 0 for none. Raises ValueError for any other format."""
    count = 0
    for part in filter(None, visible_cores.split(",")):
        first, _, last = part.partition("-")
        count += int(last or first) - int(first) + 1
    return count
