"""The installed Neuron packages: whether they are the pinned ones or placeholders of the same name."""

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
