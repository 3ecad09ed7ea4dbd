#!/usr/bin/env bash
# A real GridEngine with one host of two slots, this machine, for tests: Debian or Ubuntu, as root.
#   gridengine_cluster.sh up DIR          install what is missing, start; afterwards SGE_ROOT=DIR/root SGE_CELL=tests
#                                         SGE_QMASTER_PORT=16444 SGE_EXECD_PORT=16445
#   gridengine_cluster.sh kill-node DIR   end the host as a power cut does: its daemon and all processes of its jobs
#   gridengine_cluster.sh start-node DIR  start the host's daemon again
#   gridengine_cluster.sh down DIR        end everything
# It has a cell of its own under DIR: a GridEngine that is installed here is not touched.
set -euo pipefail
verb=${1:?up, kill-node, start-node or down}
state=${2:?a directory of its own for state and logs}
export SGE_ROOT=$state/root SGE_CELL=tests SGE_QMASTER_PORT=16444 SGE_EXECD_PORT=16445
host=$(hostname)
packages="gridengine-master gridengine-exec gridengine-client"

fail() { echo "gridengine_cluster.sh: $*" >&2; exit 1; }

install_packages() {
  command -v sge_qmaster sge_execd qsub >/dev/null && return
  [ "$(id -u)" = 0 ] || fail "GridEngine is not installed, and only root can install it: apt-get install $packages"
  # shellcheck disable=SC2086
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; } \
    > "$state/apt.log" 2>&1 || fail "apt-get install $packages failed: $(tail -n 3 "$state/apt.log")"
}

# What the Debian package does for its default cell, for ours.
create_cell() {
  local common=$SGE_ROOT/$SGE_CELL/common
  mkdir -p "$common" "$state"/{qmaster/job_scripts,execd,database}
  for part in bin lib util utilbin; do ln -s "/var/lib/gridengine/$part" "$SGE_ROOT/$part"; done
  sed -e "s|/var/spool/gridengine/spooldb|$state/database|" -e "s|/var/spool/gridengine/qmaster|$state/qmaster|" \
    /usr/share/gridengine/default-bootstrap > "$common/bootstrap"
  echo "$host" > "$common/act_qmaster"
  echo "$host localhost" > "$common/host_aliases"
  chown -R sgeadmin:sgeadmin "$SGE_ROOT" "$state"/{qmaster,execd,database}

  runuser -u sgeadmin -- /usr/share/gridengine/scripts/init_cluster "$SGE_ROOT" "$SGE_CELL" "$state/database" sgeadmin \
    > "$state/init.log" 2>&1 || fail "the cell could not be made: $(tail -n 3 "$state/init.log")"
}

# Change the lines of a configuration that is read from stdin: edit KEY VALUE KEY VALUE ...
edit() {
  local script=""
  while [ $# -gt 0 ]; do script+="s|^$1 .*|$1 $2|;"; shift 2; done
  sed "$script"
}

apply() { qconf "$@" > "$state/qconf.log" 2>&1 || fail "qconf $* failed: $(tail -n 3 "$state/qconf.log")"; }

# The form of a new object, filled in with what is usual: qconf hands it to an editor.
new_form() { { EDITOR=cat qconf "$@" 2>/dev/null || true; } | grep -E '^[a-z_]+ '; }

configure() {
  local forms=$state/forms
  mkdir "$forms"
  qconf -sconf global | edit execd_spool_dir "$state/execd" min_uid 0 min_gid 0 > "$forms/global"
  qconf -ssconf | edit schedule_interval 0:0:1 flush_submit_sec 1 flush_finish_sec 1 > "$forms/scheduler"
  printf 'group_name @tests\nhostlist %s\n' "$host" > "$forms/hosts"
  # shellcheck disable=SC2016
  new_form -ap smp | edit slots 99 allocation_rule '$pe_slots' > "$forms/smp"
  apply -Mconf "$forms/global"
  apply -Msconf "$forms/scheduler"
  apply -as "$host"
  apply -Ahgrp "$forms/hosts"
  apply -Ap "$forms/smp"
  new_form -aq main.q | edit hostlist @tests slots 2 pe_list smp shell /bin/bash shell_start_mode unix_behavior \
    load_thresholds NONE > "$forms/queue"
  apply -Aq "$forms/queue"
}

await_queue() {
  for _ in $(seq 60); do
    qstat -f 2>/dev/null | grep -qE 'main.q@.* lx-[a-z0-9]+ *$' && return
    sleep 0.5
  done
  qstat -f >&2 || true
  fail "the queue did not open in 30 s: $(tail -n 3 "$state"/qmaster/messages)"
}

up() {
  mkdir -p "$state"
  install_packages
  create_cell
  sge_qmaster || fail "sge_qmaster did not start: $(tail -n 3 "$state"/qmaster/messages)"
  for _ in $(seq 60); do qconf -sconf global >/dev/null 2>&1 && break; sleep 0.5; done
  configure
  sge_execd
  await_queue
}

descendants() {
  local child
  for child in $(pgrep -P "$1"); do descendants "$child"; echo "$child"; done
}

execd_pid() { cat "$state"/execd/*/execd.pid; }  # the folder has the name that the host resolves to

kill_node() {
  local daemon; daemon=$(execd_pid)
  # shellcheck disable=SC2046
  kill -KILL "$daemon" $(descendants "$daemon") 2>/dev/null || true
}

await_end() {
  for _ in $(seq 50); do
    case $(ps -o stat= -p "$1" 2>/dev/null) in "" | Z*) return ;; esac
    sleep 0.2
  done
  kill -KILL "$1" 2>/dev/null || true
}

down() {
  local execd="" qmaster=""
  execd=$(execd_pid 2>/dev/null || true)
  qmaster=$(cat "$state/qmaster/qmaster.pid" 2>/dev/null || true)
  qdel -f -u '*' >/dev/null 2>&1 || true
  if [ -n "$execd" ]; then kill_node; await_end "$execd"; fi
  if [ -n "$qmaster" ]; then kill "$qmaster" 2>/dev/null || true; await_end "$qmaster"; fi
}

case $verb in
  up) up ;;
  kill-node) kill_node ;;
  start-node) sge_execd; await_queue ;;
  down) down ;;
  *) fail "unknown verb $verb" ;;
esac
