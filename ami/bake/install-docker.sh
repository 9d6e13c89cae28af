#!/usr/bin/env bash
# Installs Docker where the base image has none, as Canonical's images, on which arm64 is baked. Neuron's have it.
# Not run in a real account yet; tests/ami/test_bake.py runs it with programs of its own.
set -euo pipefail

if command -v docker >/dev/null; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
apt-get update
# A fresh instance of Canonical's may be upgrading itself. BuildKit is what the Dockerfile's secrets need.
apt-get install --yes --no-install-recommends --option DPkg::Lock::Timeout=300 docker.io docker-buildx
