#!/usr/bin/env bash
# Runs the Neuron day of this checkout in the service's container: `on-host.sh OPTION...`, those of
# `python -m rehearsal.bench.neuron_day`. The image has the Neuron SDK, the gateway's packages, a model and its base; the
# checkout, which is mounted, has the rest, and takes what was measured. Not run on hardware;
# tests/rehearsal/bench/test_neuron_day.py runs it with a docker of its own.
set -euo pipefail

checkout=$(cd "$(dirname "$0")/../../.." && pwd)
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
devices=()
for device in "$devices_in"/neuron[0-9]*; do
  [[ -e $device ]] && devices+=("--device=$device")
done
if ((${#devices[@]} == 0)); then
  echo "no $devices_in/neuron0: is the Neuron driver loaded? (lsmod | grep neuron)" >&2
  exit 2
fi
if group=$(getent group neuron); then devices+=(--group-add "$(cut -d: -f3 <<<"$group")"); fi
options=("${devices[@]}")
if [[ -d $data ]]; then options+=(--volume "$(cd "$data" && pwd):/data:ro" --env PEAKPLAN_DATA=/data); fi

# What the runtime needs, tried with as few rights as a host gives it (serve.sh), then with more.
probe() { # rights
  local options
  read -ra options <<<"$(bash "$checkout/ami/host/serve.sh" rights "$1")"
  docker run --rm --pull never --volume "$checkout:/checkout:ro" "${devices[@]}" "${options[@]}" \
    --entrypoint /opt/peakplan/replica/bin/python "$image" /checkout/rehearsal/bench/neuron_day/device.py
}
rights=
for each in none memory aws; do
  if probe "$each"; then rights=$each && break; fi
done
if [[ -z $rights ]]; then
  echo "the runtime does not start with any rights (above): does its driver belong to the image's SDK? ($checkout/ami/bake/check_neuron.py)" >&2
  exit 2
fi
if ! docker run --rm --pull never --entrypoint /bin/bash "$image" -c 'command -v g++ && command -v ld' >/dev/null; then
  echo "the image has no g++ or ld, which torch-neuronx compiles with: build it again with this checkout's service/Dockerfile" >&2
  exit 2
fi
cores_seconds=${PEAKPLAN_CORES_SECONDS:-300}
began=$SECONDS waited=0
until probe "$rights"; do
  if ((SECONDS - began >= cores_seconds)); then
    echo "the NeuronCores are not free $cores_seconds s after the process that had them (aws-neuron-sdk#1338): restart the host and" \
      "begin again. A fleet replaces such a host; the line for its file, under model: lost_replica_seconds: $cores_seconds" >&2
    exit 2
  fi
  sleep 1
  waited=$((SECONDS - began))
done
if ((waited)); then echo "the NeuronCores were free only $waited s after the process that had them (aws-neuron-sdk#1338)"; fi
echo "the runtime starts with device_rights: $rights"
read -ra may <<<"$(bash "$checkout/ami/host/serve.sh" rights "$rights")"
options+=("${may[@]}")

# Run as the user who started this script, so that they own the results; only `aws` needs root. The gateway's Python runs
# the day and starts the model's Python for the parts.
exec docker run --rm --pull never --network host --shm-size 1g --tmpfs /tmp:rw,exec --user "$(id -u):$(id -g)" \
  --volume "$checkout:/checkout" --workdir /checkout --env PYTHONPATH=/checkout:/checkout/clients "${options[@]}" \
  --entrypoint python "$image" -m rehearsal.bench.neuron_day --device-rights "$rights" --cores-waited "$waited" "$@"
