#!/usr/bin/env bash
# Real NeMo Gym and OpenEnv servers to train against: installs both from PyPI into DIR/.venv, starts them, says where.
#
#   gym_servers.sh [--dir DIR] [--servers "A B"] [--head-port PORT] [--model-url URL] [--model-name NAME]
#   gym_servers.sh --only-install [--dir DIR]     # DIR is then a nemo_gym_dir that nemo_gym_auto_start can start
#   gym_servers.sh --stop [--dir DIR]
#
#   --dir        where everything lies                    [${TMPDIR:-/tmp}/rlalgo-gym]
#   --servers    resources servers of the nemo-gym wheel  [string_match]
#   --head-port  of the head server                       [11000]
#   --model-url  the OpenAI endpoint that agents ask      [http://127.0.0.1:8000/v1]: rlalgo vllm-serve's, for example
#
# Not part of the build, no dependency of it. Needs Python 3.13 or later (PYTHON), 1.3 GB of disk and 5 GB of memory.
# Environment: PYTHON, GYM_VERSION [0.7.0], OPENENV_VERSION [0.10.0].
set -euo pipefail

folder=${TMPDIR:-/tmp}/rlalgo-gym
servers=string_match
head_port=11000
model_url=http://127.0.0.1:8000/v1
model_name=policy
action=start
while [ $# -gt 0 ]; do
  case $1 in
    --dir) folder=$2; shift 2 ;;
    --servers) servers=$2; shift 2 ;;
    --head-port) head_port=$2; shift 2 ;;
    --model-url) model_url=$2; shift 2 ;;
    --model-name) model_name=$2; shift 2 ;;
    --only-install) action=install; shift ;;
    --stop) action=stop; shift ;;
    *) echo "gym_servers.sh: unknown argument $1" >&2; exit 2 ;;
  esac
done
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
venv=$folder/.venv

# ng_run ends its servers on SIGTERM; what is left of its session after 30 s is killed.
stop() {
  [ -f "$folder/ng_run.pid" ] || return 0
  local pid
  pid=$(cat "$folder/ng_run.pid")
  kill -TERM "$pid" 2>/dev/null || true
  for _ in $(seq 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  kill -KILL -- "-$pid" 2>/dev/null || true
  rm -f "$folder/ng_run.pid"
}

python_of_gym() {
  local candidate
  for candidate in ${PYTHON:-} python3.13 python3.14 python3 "$HOME"/.pyenv/versions/3.1[3-9]*/bin/python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 13))' 2>/dev/null; then echo "$candidate"; return; fi
  done
  echo "gym_servers.sh: nemo-gym needs Python 3.13 or later; name one in PYTHON" >&2
  exit 1
}

# The wheel asks for 3.13.14; what it needs is in 3.13.0.
install() {
  [ -f "$venv/.installed" ] && return
  local python packages
  python=$(python_of_gym)
  packages=("nemo-gym==${GYM_VERSION:-0.7.0}" "openenv==${OPENENV_VERSION:-0.10.0}" reasoning-gym math-verify==0.8.0 tiktoken)
  rm -rf "$venv"
  if command -v uv >/dev/null; then
    uv venv -q --python "$python" "$venv"
    uv pip install -q --python "$venv/bin/python" --python-version 3.13.14 "${packages[@]}"
  else
    "$python" -m venv "$venv"
    "$venv/bin/pip" install -q --ignore-requires-python "${packages[@]}"
  fi
  # Each server looks for a .venv below its own folder in the working directory: all get this one.
  local site part
  site=$("$venv/bin/python" -c 'import nemo_gym; print(nemo_gym.PARENT_DIR)')
  for part in "$site"/{resources_servers,responses_api_agents,responses_api_models,environment_servers}/*/; do
    part=${part#"$site"/}
    mkdir -p "$folder/$part"
    ln -sfn "$venv" "$folder/${part}.venv"
  done
  touch "$venv/.installed"
}

policy() {
  cat >"$folder/policy.yaml" <<YAML
policy_model:
  responses_api_models:
    vllm_model:
      entrypoint: app.py
      base_url: $model_url
      api_key: none
      model: $model_name
      return_token_id_information: true
      request_prompt_and_generation_token_ids: true
      uses_reasoning_parser: false
YAML
}

case $action in
  stop) stop ;;
  install) install; policy ;;
  start)
    stop
    install
    policy
    paths=policy.yaml
    for server in $servers; do paths+=,resources_servers/$server/configs/$server.yaml; done
    cd "$folder"
    RAY_AUTH_MODE=disabled RAY_USAGE_STATS_ENABLED=0 PATH=$venv/bin:$PATH setsid "$venv/bin/ng_run" "+config_paths=[$paths]" \
      +skip_venv_if_present=true +head_server.host=127.0.0.1 "+head_server.port=$head_port" \
      +model_endpoint_readiness_timeout_seconds=0 >"$folder/ng_run.log" 2>&1 </dev/null &
    echo $! >"$folder/ng_run.pid"
    for _ in $(seq 600); do
      if ! kill -0 "$(cat "$folder/ng_run.pid")" 2>/dev/null; then
        tail -n 20 "$folder/ng_run.log" >&2
        exit 1
      fi
      if curl -sf -m 5 -o /dev/null "http://127.0.0.1:$head_port/readyz"; then
        echo "head server: http://127.0.0.1:$head_port (nemo_gym_head_port: $head_port); log: $folder/ng_run.log"
        exit 0
      fi
      sleep 1
    done
    echo "gym_servers.sh: the Gym is not ready after 600 s; see $folder/ng_run.log" >&2
    exit 1
    ;;
esac
