#!/usr/bin/env bash
# Compiles the model for each chip family of the fleet: `compile-model.sh "inf2 trn1" OPTION...`; the options are those of
# `python -m service.engines.neuron compile`. Nothing compiles at a boot. Not run on hardware; tests/ami/test_bake.py runs
# it with a docker of its own.
set -euo pipefail

chips=${1:?usage: compile-model.sh CHIPS OPTION...}
shift
home=${PEAKPLAN_HOME:-/opt/peakplan}
image=peakplan:baked

neuron() { # without a network: what is not in the image is not needed
  docker run --rm --pull never --network none --user 0 --entrypoint /opt/peakplan/replica/bin/python \
    --volume "$home/model:/opt/peakplan/model:ro" --volume "$home/compiled:/opt/peakplan/compiled" "$image" \
    -m service.engines.neuron "$@"
}

for chip in $chips; do
  [[ $chip == cpu ]] && continue # processors run the model folder as it is
  neuron compile --output "/opt/peakplan/compiled/$chip" --chip "$chip" "$@"
  neuron check --compiled "/opt/peakplan/compiled/$chip"
done
mkdir -p "$home/compiled"
chmod -R a+rX,go-w "$home/compiled"
