# Source this, then `start_docker` and, whatever happens, `stop_docker`: a Docker Engine of its own for the tests, with
# its data in a temporary folder. An Engine that already answers is used as it is and left alone.

ci_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
docker_work=
cache_folder="${XDG_CACHE_HOME:-$HOME/.cache}/decode-ab"
# No image can be pulled where the tests run, so a stand-in for the Python image is made from packages.
export TEST_BASE=decode-ab-test-base:bookworm

start_docker() {
  install_docker && start_engine && link_compose && import_base
}

install_docker() {
  command -v dockerd >/dev/null && command -v debootstrap >/dev/null && command -v iptables >/dev/null && return
  echo "installing Docker Engine" >&2
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    docker.io iptables debootstrap ca-certificates >/dev/null
}

start_engine() {
  docker info >/dev/null 2>&1 && return
  docker_work=$(mktemp -d /tmp/decode-ab-docker.XXXXXX)
  export DOCKER_HOST="unix://$docker_work/docker.sock"
  # Some tests stop the daemon and start it again; they need to know how.
  export DOCKERD_PIDFILE="$docker_work/pid"
  export DOCKERD_COMMAND="dockerd --data-root $docker_work/data --exec-root $docker_work/exec --pidfile $DOCKERD_PIDFILE"
  DOCKERD_COMMAND="$DOCKERD_COMMAND --host $DOCKER_HOST"
  $DOCKERD_COMMAND >"$docker_work/log" 2>&1 </dev/null &
  for _ in $(seq 60); do
    docker info >/dev/null 2>&1 && return
    [ -d "/proc/$!" ] || break
    sleep 1
  done
  echo "dockerd did not start:" >&2
  tail -n 20 "$docker_work/log" >&2
  return 1
}

link_compose() {
  docker compose version >/dev/null 2>&1 && return
  local venv="$cache_folder/compose"
  python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check --require-hashes \
    -r "$ci_root/requirements/compose.lock" || return
  mkdir -p "$HOME/.docker/cli-plugins"
  ln -sf "$venv/bin/docker-compose" "$HOME/.docker/cli-plugins/docker-compose"
  docker compose version >&2
}

import_base() {
  docker image inspect "$TEST_BASE" >/dev/null 2>&1 && return
  local archive="$cache_folder/test-base-bookworm.tar"
  [ -f "$archive" ] || make_base "$archive" || return
  docker import --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' "$archive" "$TEST_BASE" >/dev/null
}

make_base() {
  local root
  root=$(mktemp -d /tmp/decode-ab-base.XXXXXX)
  mkdir -p "$(dirname "$1")"
  debootstrap --variant=minbase --include=python3,python3-venv,python3-pip,ca-certificates bookworm "$root" >"$root.log" \
    || { tail -n 20 "$root.log" >&2; return 1; }
  # The certificates that this machine trusts, so that pip reaches the same index from inside a build.
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  tar -C "$root" -cf "$1.partial" . && mv "$1.partial" "$1"
  rm -rf "$root" "$root.log"
}

stop_docker() {
  [ -n "$docker_work" ] || return 0
  kill "$(cat "$docker_work/pid" 2>/dev/null)" 2>/dev/null
  for _ in $(seq 30); do
    [ -e "$docker_work/pid" ] || break
    sleep 1
  done
  rm -rf "$docker_work"
  docker_work=
  unset DOCKER_HOST DOCKERD_PIDFILE DOCKERD_COMMAND
}
