#!/usr/bin/env bash
# Runs the Neuron day of this checkout in the service's container: `on-host.sh OPTION...`, those of
# `python -m benchmarks.neuron_day`. The image has the Neuron SDK, the gateway's packages, a model and its base; the
# checkout, which is mounted, has the rest, and takes what was measured. Not run on hardware;
# tests/benchmarks/test_neuron_day_script.py runs it with a docker of its own.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/../.." && pwd)
devices_in=${PEAKPLAN_DEVICES:-/dev}
data=${PEAKPLAN_DATA:-$checkout/../shared/data}

image=${PEAKPLAN_IMAGE:-}
for each in ${image:-peakplan:baked peakplan:latest}; do # what a fleet's machine image has, and what docs/container.md builds
  if docker image inspect "$each" >/dev/null 2>&1; then image=$each && break; fi
done
if [[ -z $image ]] || ! docker image inspect "$image" >/dev/null 2>&1; then
  echo "no image ${image:-peakplan:baked or peakplan:latest}: build it (docker build --file service/Dockerfile --tag peakplan .)" >&2
  exit 2
fi
if [[ -n $(docker ps --quiet --filter name=^peakplan$) ]]; then # its replicas hold the cores until they end
  echo "the service runs here and holds the NeuronCores: stop it first (sudo systemctl stop peakplan.service)" >&2
  exit 2
fi
options=()
for device in "$devices_in"/neuron[0-9]*; do
  [[ -e $device ]] && options+=("--device=$device")
done
if ((${#options[@]} == 0)); then
  echo "no $devices_in/neuron0: is the Neuron driver loaded? (lsmod | grep neuron)" >&2
  exit 2
fi
if group=$(getent group neuron); then options+=(--group-add "$(cut -d: -f3 <<<"$group")"); fi
if [[ -d $data ]]; then options+=(--volume "$(cd "$data" && pwd):/data:ro" --env PEAKPLAN_DATA=/data); fi

# As whoever started it, so that the results are theirs. The gateway's Python runs it; it starts the model's for the parts.
exec docker run --rm --pull never --network host --shm-size 1g --tmpfs /tmp:rw,exec --user "$(id -u):$(id -g)" \
  --volume "$checkout:/checkout" --workdir /checkout --env PYTHONPATH=/checkout:/checkout/clients "${options[@]}" \
  --entrypoint python "$image" -m benchmarks.neuron_day "$@"
