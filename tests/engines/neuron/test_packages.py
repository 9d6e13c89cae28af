import logging
import tempfile
from importlib import metadata
from pathlib import Path

import pytest

from service.engines.neuron.packages import PINS, SDK, NeuronUnavailableError, installed_versions


def described(version: str, description: str = "AWS Neuron") -> metadata.PackageMetadata:
    """Return an installed package's metadata as importlib.metadata reads it."""
    with tempfile.TemporaryDirectory() as folder:
        written = f"Metadata-Version: 2.1\nName: it\nVersion: {version}\n\n{description}\n"
        Path(folder, "METADATA").write_text(written, encoding="utf-8")
        return metadata.PathDistribution(Path(folder)).metadata


def pinned(name: str) -> metadata.PackageMetadata:
    return described(f"{PINS[name]}1")


def test_the_pinned_packages_are_taken_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    assert installed_versions(pinned) == {name: f"{pin}1" for name, pin in PINS.items()}
    assert not caplog.records


def test_here_without_them_the_message_names_the_pin_and_the_way() -> None:
    with pytest.raises(NeuronUnavailableError) as caught:
        installed_versions()

    words = str(caught.value)
    assert f"Neuron SDK {SDK}" in words
    assert "neuronx-distributed-inference 0.8.x" in words
    assert "neuronx-distributed-inference is not installed" in words
    assert "the group `neuron` of pyproject.toml" in words
    assert "PEAKPLAN_ENGINE=torch" in words


def test_a_placeholder_of_the_public_index_is_not_the_package() -> None:
    def read(name: str) -> metadata.PackageMetadata:
        return (
            described("2.9.0.2.12.0", "WRONG PACKAGE. Please install it from elsewhere")
            if "torch" in name
            else pinned(name)
        )

    with pytest.raises(
        NeuronUnavailableError, match=r"torch-neuronx 2\.9\.0\.2\.12\.0 is the public index's placeholder"
    ):
        installed_versions(read)


def test_another_release_is_warned_of_and_used(caplog: pytest.LogCaptureFixture) -> None:
    def read(name: str) -> metadata.PackageMetadata:
        return described("0.9.1") if name == "neuronx-distributed-inference" else pinned(name)

    with caplog.at_level(logging.WARNING):
        assert installed_versions(read)["neuronx-distributed-inference"] == "0.9.1"
    assert "0.9.1 is not of Neuron SDK 2.28 (0.8.x)" in caplog.text
