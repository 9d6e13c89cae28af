#!/usr/bin/env bash
# Refuses an image that lacks a program which host scripts and units call: at boot, it would be found out by a fleet.
# `check-programs.sh CHIPS`, where cpu alone needs nothing of Neuron's.
# Not run in a real account yet; tests/ami/test_bake.py runs it, and holds this list to what scripts and units call.
set -euo pipefail

chips=${1:?usage: check-programs.sh CHIPS}
# By name, as scripts call them.
called=(aws cut docker getent grep lscpu python3 sed sort systemctl tail wc)
# By path, as units call them.
paths=(
  /bin/bash
  /opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl
  /usr/bin/python3
  /usr/local/bin/peakplan-lifecycle
  /usr/local/bin/peakplan-serve
  /usr/local/bin/peakplan-telemetry
  /usr/sbin/logrotate
)
on_chips=(
  /opt/aws/neuron/bin/neuron-monitor
  /opt/aws/neuron/bin/neuron-monitor-prometheus.py
)
if [[ $chips != cpu ]]; then paths+=("${on_chips[@]}"); fi
root=${PEAKPLAN_ROOT:-}
missing=()
for name in "${called[@]}"; do command -v "$name" >/dev/null || missing+=("$name"); done
for path in "${paths[@]}"; do [[ -e $root$path ]] || missing+=("$path"); done
if ((${#missing[@]})); then
  echo "the image lacks ${missing[*]}: host scripts call them; choose a base image that has them, or install them" >&2
  exit 1
fi
# An aws that is there and does not know the one call that every host makes would be no better.
aws autoscaling complete-lifecycle-action --generate-cli-skeleton >/dev/null
systemctl is-enabled --quiet peakplan.target
