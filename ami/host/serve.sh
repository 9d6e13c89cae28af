#!/usr/bin/env bash
# Runs the baked container over every Neuron chip of this host, or over its processor's cores where host.env says
# PEAKPLAN_ENGINE=torch, or stops it: `serve.sh start|stop`. `serve.sh rights none|memory|aws` prints a container's options.
# Not run on hardware; tests/ami/test_serve.py runs it with a docker of its own.
set -euo pipefail

image=${PEAKPLAN_IMAGE:-peakplan:baked}
home=${PEAKPLAN_HOME:-/opt/peakplan}
configuration=${PEAKPLAN_CONFIGURATION:-/etc/peakplan}
devices_in=${PEAKPLAN_DEVICES:-/dev}
cores_per_device=2 # NeuronCores of an Inferentia2 or Trainium1 chip; logical ones of Trainium2
# What a gateway may take after its drain: PEAKPLAN_SHUTDOWN_SECONDS, then Triton's end, then room.
after_drain_seconds=45

setting() { # name, the last of image.env (what was baked) and host.env (who this host is) that says it
  sed -n "s/^$1=//p" "$configuration/image.env" "$configuration/host.env" | tail -n 1
}

start() {
  if [[ $(setting PEAKPLAN_ENGINE) == torch ]]; then
    start_on_processor
  else
    start_on_chips
  fi
}

start_on_processor() { # a replica for each core: two threads of one core share its units, and gain our kernels little
  local cores
  cores=$(lscpu --parse=CORE,SOCKET | grep --invert-match '^#' | sort --unique | wc --lines)
  run_container "$cores"
}

# What a container may do. Neuron's own image asks for `aws`; whether its runtime needs that, `peakplan bench neuron-day` finds out.
# Capabilities reach no other user than root, whom `aws` therefore takes, with the right to write what others own.
rights() {
  case $1 in
    none) echo --cap-drop ALL --security-opt no-new-privileges ;;
    memory) echo --cap-drop ALL --security-opt no-new-privileges --ulimit memlock=-1:-1 ;;
    aws) echo --cap-drop ALL --cap-add SYS_ADMIN --cap-add IPC_LOCK --cap-add DAC_OVERRIDE --security-opt no-new-privileges \
      --user 0 ;;
    *)
      echo "PEAKPLAN_DEVICE_RIGHTS=$1 is none of none, memory, aws" >&2
      return 1
      ;;
  esac
}

start_on_chips() {
  local device devices=() chip cores device_rights
  for device in "$devices_in"/neuron[0-9]*; do
    [[ -e $device ]] && devices+=("--device=$device")
  done
  if ((${#devices[@]} == 0)); then
    echo "no $devices_in/neuron0: is the Neuron driver loaded? (lsmod | grep neuron)" >&2
    exit 1
  fi
  chip=$(setting PEAKPLAN_GROUP)
  if [[ ! -d $home/compiled/$chip ]]; then
    echo "nothing was compiled for '$chip' into $home/compiled: the fleet's groups name the chips to bake for" >&2
    exit 1
  fi
  cores=$(setting PEAKPLAN_TENSOR_PARALLEL)
  device_rights=$(setting PEAKPLAN_DEVICE_RIGHTS)
  if [[ $chip == trn2 ]]; then cores_per_device=4; fi
  run_container "$((${#devices[@]} * cores_per_device / ${cores:-1}))" \
    --group-add "$(getent group neuron | cut -d: -f3)" "${devices[@]}" \
    --volume "$home/compiled/$chip:/opt/peakplan/compiled:ro" --env PEAKPLAN_COMPILED_DIR=/opt/peakplan/compiled
}

# Sets `events`, options of docker run for shoppers' events, where the fleet file has turned them on. Their key is read at
# every start and stays in the environment. Without it hosts would refuse each other's plans, so none keeps events then:
# plans go on, and no shopper is in an arm that nobody keeps.
find_events() {
  local folder parameter
  events=()
  folder=$(setting PEAKPLAN_OUTCOMES_DIR)
  parameter=$(setting PEAKPLAN_OUTCOMES_KEY_PARAMETER)
  if [[ -z $folder ]]; then return; fi
  if PEAKPLAN_OUTCOMES_KEY=$(aws ssm get-parameter --name "$parameter" --with-decryption --query Parameter.Value \
    --output text --region "$(setting PEAKPLAN_REGION)" --cli-connect-timeout 5 --cli-read-timeout 5); then
    export PEAKPLAN_OUTCOMES_KEY
    events=(--volume "$folder:$folder" --env PEAKPLAN_OUTCOMES_KEY)
  else
    echo "$parameter cannot be read: this host keeps no events of shoppers until it is started again" >&2
    events=(--env PEAKPLAN_OUTCOMES_DIR= --env PEAKPLAN_OUTCOMES_FIREHOSE= --env PEAKPLAN_EXPERIMENT_NAME=
      --env PEAKPLAN_EXPERIMENT_ARMS=)
  fi
}

run_container() { # replicas, then further options of docker run
  local replicas=$1 events may
  shift
  may=$(rights "${device_rights:-none}")
  find_events
  docker rm --force peakplan >/dev/null 2>&1 || true
  # shellcheck disable=SC2086 # several options. Its address is the host's: one hop less, and callers' addresses are their own.
  exec docker run --rm --pull never --name peakplan --network host --log-driver none \
    --read-only --tmpfs /tmp:rw,exec,nosuid,nodev,size=256m --shm-size 1g \
    $may --pids-limit 4096 \
    --volume "$home/model:/opt/peakplan/model:ro" "$@" \
    --env-file "$configuration/image.env" --env-file "$configuration/host.env" \
    "${events[@]}" --env "PEAKPLAN_REPLICAS=$replicas" "$image"
}

stop() {
  local drain
  drain=$(setting PEAKPLAN_DRAIN_SECONDS)
  # Killed earlier, it would drop what the balancer sent while the gateway was still serving on.
  docker stop --time "$((${drain:-0} + after_drain_seconds))" peakplan
}

case ${1:-} in
  start | stop) "$1" ;;
  rights) rights "${2:-}" ;;
  *)
    echo "usage: serve.sh start|stop|rights" >&2
    exit 2
    ;;
esac
