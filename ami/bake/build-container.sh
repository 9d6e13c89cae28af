#!/usr/bin/env bash
# Builds the service's container from the release: `build-container.sh BASE`. It downloads, so that no boot ever does.
# Not run in a real account yet; tests/ami/test_bake.py runs it with a docker of its own.
set -euo pipefail

base=${1:?usage: build-container.sh BASE}
home=${PEAKPLAN_HOME:-/opt/peakplan}
image=peakplan:baked

# The model is part of the context, as the Dockerfile wants it; hosts mount the one beside it.
cp --recursive "$home/model" "$home/release/model"
arguments=(--build-arg "BASE=$base" --build-arg MODEL=model)
# Neuron's containers are for x86 alone: elsewhere the base is a Python, and the service brings its own torch.
if [[ $(uname -m) == aarch64 ]]; then
  arguments+=(--build-arg REQUIREMENTS=service --build-arg TORCH=torch
    --build-arg REPLICA= --build-arg TRITON=)
fi
DOCKER_BUILDKIT=1 docker build --pull=false --file "$home/release/service/Dockerfile" --tag "$image" \
  "${arguments[@]}" "$home/release"

# neuron-monitor-prometheus.py runs on the host, and wants the one package that it shares with the service.
docker run --rm --pull never --user 0 --entrypoint /bin/bash --volume "$home/packages:/packages" "$image" \
  -c 'cp --recursive /opt/peakplan/venv/lib/python3*/site-packages/prometheus_client /packages/'
rm -r "$home/release"
