#!/usr/bin/env bash
# A real Slurm of two one-CPU nodes, both on this machine, for tests: Debian or Ubuntu, as root.
#   slurm_cluster.sh up DIR           install what is missing, start; afterwards SLURM_CONF=DIR/slurm.conf
#   slurm_cluster.sh kill-node DIR N  end node N as a power cut does: its daemon and all of its jobs' processes
#   slurm_cluster.sh start-node DIR N start a node's daemon again
#   slurm_cluster.sh down DIR         end everything
set -euo pipefail
verb=${1:?up, kill-node, start-node or down}
state=${2:?a directory of its own for state and logs}
node=${3:-}
export SLURM_CONF=$state/slurm.conf

fail() { echo "slurm_cluster.sh: $*" >&2; exit 1; }

install_packages() {
  command -v slurmctld slurmd munged >/dev/null && return
  [ "$(id -u)" = 0 ] || fail "Slurm is not installed, and only root can install it: apt-get install slurm-wlm munge"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurm-wlm munge; } \
    > "$state/apt.log" 2>&1 || fail "apt-get install slurm-wlm munge failed: $(tail -n 3 "$state/apt.log")"
}

start_munge() {
  [ -e /etc/munge/munge.key ] || mungekey --create
  # Our own key agent, so that an installed one is neither needed nor disturbed.
  install -d -o munge -g munge -m 0711 "$state/munge"
  install -o munge -g munge -m 0400 /etc/munge/munge.key "$state/munge/key"
  runuser -u munge -- /usr/sbin/munged --key-file="$state/munge/key" --socket="$state/munge/socket" \
    --pid-file="$state/munge/pid" --log-file="$state/munge/log" --seed-file="$state/munge/seed"
}

configure() {
  local host; host=$(hostname)
  cat > "$SLURM_CONF" <<CONF
ClusterName=engine-tests
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$state/munge/socket
SlurmctldPort=26817
SlurmctldPidFile=$state/slurmctld.pid
SlurmctldLogFile=$state/slurmctld.log
StateSaveLocation=$state/controller
SlurmdPidFile=$state/slurmd.%n.pid
SlurmdLogFile=$state/slurmd.%n.log
SlurmdSpoolDir=$state/spool.%n
# A silent node is down after 10 s, and serves again as soon as it answers.
SlurmdTimeout=10
ReturnToService=2
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=n[1-2] NodeHostname=$host NodeAddr=127.0.0.1 Port=[27001-27002] CPUs=1 RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
}

up() {
  mkdir -p "$state"/{controller,spool.n1,spool.n2}
  install_packages
  start_munge
  configure
  slurmctld
  slurmd -N n1
  slurmd -N n2
  for _ in $(seq 60); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ] && return
    sleep 0.5
  done
  sinfo >&2 || true
  fail "the two nodes did not become idle in 30 s: $(tail -n 3 "$state"/slurm*.log)"
}

descendants() {
  local child
  for child in $(pgrep -P "$1"); do descendants "$child"; echo "$child"; done
}

# Each job of a node hangs on a step daemon, which writes to that node's log.
step_daemons() {
  local pid
  for pid in $(pgrep -f '^slurmstepd: '); do
    if find "/proc/$pid/fd" -lname "$state/slurmd.$1.log" 2>/dev/null | grep -q .; then echo "$pid"; fi
  done
}

kill_node() {
  local step
  kill -KILL "$(cat "$state/slurmd.$1.pid")" 2>/dev/null || true
  for step in $(step_daemons "$1"); do
    # shellcheck disable=SC2046
    kill -KILL "$step" $(descendants "$step") 2>/dev/null || true
  done
}

await_end() {
  for _ in $(seq 50); do
    case $(ps -o stat= -p "$1" 2>/dev/null) in "" | Z*) return ;; esac
    sleep 0.2
  done
  kill -KILL "$1" 2>/dev/null || true
}

down() {
  local pid
  kill_node n1
  kill_node n2
  for pid in $(cat "$state"/slurmctld.pid "$state"/munge/pid 2>/dev/null); do
    kill "$pid" 2>/dev/null || true
    await_end "$pid"
  done
}

case $verb in
  up) up ;;
  kill-node) kill_node "$node" ;;
  start-node) slurmd -N "$node" ;;
  down) down ;;
  *) fail "unknown verb $verb" ;;
esac
