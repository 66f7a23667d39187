#!/usr/bin/env bash
# Sets up a virtual environment on first use, then runs one command of the suite in it. ./run.sh --help
set -euo pipefail

# The table of commands, a line each: "|GROUP" before its commands, and "NAME|what it does".
commands() {
  sed -nE -e 's/^    "([A-Z][a-z]+)": \{$/|\1/p' -e 's/^        "([a-z_-]+)": "(.*)",$/\1|\2/p' \
    rnn_scaling/commands/table.py
}

# The old names of commands, a line each: "OLD|the words to type instead".
moved() { sed -nE 's/^    "([a-z_-]+)": "(.*)",$/\1|\2/p' rnn_scaling/commands/table.py; }

usage() {
  local name text
  cat <<'USAGE'
./run.sh [COMMAND] [--flags ...]

  (none)         runs the default sweep for 3 minutes; as far as time allows,
                 it trains cudnn_lstm and dynamic_rnn, each with independent
                 replicas, a parameter server and all-reduce, on 1 to N
                 devices; writes records and report to results/default
USAGE
  commands | while IFS='|' read -r name text; do
    if [ -n "$name" ]; then printf '  %-14s %s\n' "$name" "$text"; else printf '\n%s\n' "$text"; fi
  done
  cat <<'USAGE'

Set-up and tests
  test           runs the tests; more arguments go to pytest (--quick: a minute,
                 no TensorFlow; --clusters: also those that start clusters)
  lint           checks style, types and the links of the documents
  docs           builds the documentation site in build/docs; `docs serve`
                 shows it at http://localhost:8000
  setup          only sets up the environment
  setup-horovod  adds Horovod for --variable_update=horovod (builds for minutes)
  setup-frameworks  adds torch, jax or keras for --framework, each in its own
                 environment

./run.sh COMMAND --help explains a command. Paths are relative to the current
folder.

Environment variables:
  PYTHON         Python interpreter (3.10 to 3.13) for the environment
  VENV           folder of the environment (default: .venv)
  SETUP_TIMEOUT  time limit for installing, in seconds (default: 900; 7200 for
                 setup-horovod)
  CC             C compiler that builds the faster CPU kernels
                 (default: cc)
  RNN_SCALING_OPERATORS  faster CPU kernels: off, avx2, avx512 or avx512_bf16
                 (default: the best of the processor)
USAGE
}

works() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
has_pip() { "$1" -m pip --version >/dev/null 2>&1; }

# Prints the Python that creates the environment, or has created it: python_for_setup ENVIRONMENT
python_for_setup() {
  local candidate
  if [ -z "${PYTHON:-}" ] && works "$1/bin/python" && { [ -f "$1/.installed" ] || has_pip "$1/bin/python"; }; then
    echo "$1/bin/python"
    return
  fi
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11 python3.10}; do
    if works "$candidate"; then
      echo "$candidate"
      return
    fi
  done
  echo "error: no Python 3.10 to 3.13 found (tried ${PYTHON:-python3, python3.10 to python3.13}); set PYTHON to the path of one" >&2
  return 1
}

# Fails with the reason if this user can neither use the environment nor create it: can_make ENVIRONMENT
can_make() {
  local place=$1 reason
  until [ -e "$place" ]; do place=$(dirname "$place"); done
  if [ -w "$place" ] && { [ ! -e "$1/bin" ] || [ -w "$1/bin" ]; }; then return; fi
  if [ "$place" != "$1" ]; then
    reason="it does not exist"
  elif reason=$("$1/bin/python" -c 'import encodings' 2>&1); then
    reason="its packages are not those of requirements.txt, or its Python is not 3.10 to 3.13"
  else
    reason="its Python does not start: $(sed -n '1s/.*: //p' <<<"$reason")"
  fi
  echo "error: $1 cannot be used ($reason), and you may not write to $place; set VENV=FOLDER to use another folder" >&2
  return 1
}

# Creates the environment unless a complete one of that Python exists: make_environment ENVIRONMENT PYTHON
make_environment() {
  local options=() present
  present=$("$1/bin/python" --version 2>/dev/null) || present=
  if [ "$present" = "$("$2" --version)" ] && has_pip "$1/bin/python"; then
    return
  elif [ -f "$1/.installed" ]; then
    options=(--clear)
  elif { [ -n "$present" ] || [ -L "$1/bin/python" ]; } && [ "$present" != "$("$2" --version)" ]; then
    echo "error: another program created $1 with ${present:-a Python that does not start}; set VENV=FOLDER to use another folder" >&2
    return 1
  fi
  if ! "$2" -m venv ${options[@]+"${options[@]}"} "$1" >&2; then
    echo "error: $2 cannot create the virtual environment $1; on Debian and Ubuntu try: apt install python3-venv" >&2
    return 1
  fi
}

has_gpu() { compgen -G '/dev/nvidia[0-9]*' >/dev/null; }

# Copies pip's lines from stdin to stdout; reports progress on stderr every ten seconds.
progress() {
  local line= step="asking the package index" reported=$SECONDS status
  trap '' TERM # the process group of pip gets it; this function ends with pip's output
  while true; do
    status=0
    IFS= read -r -t 10 line || status=$?
    if [ "$status" = 0 ]; then
      printf '%s\n' "$line"
      case "$line" in
        *Collecting* | *Downloading* | *Building*) step=${line#"${line%%[! ]*}"} ;;
        Installing*) step="Installing the downloaded packages" ;;
      esac
    elif [ "$status" -le 128 ]; then
      return
    fi
    if [ $((SECONDS - reported)) -ge 10 ]; then
      reported=$SECONDS
      echo "  $((SECONDS)) s: ${step:0:90}" >&2
    fi
  done
}

# mpirun and srun start run.sh many times at once: one sets up, and the others wait. Programs that start after the
# set-up do not hold the lock: lock ENVIRONMENT
lock() {
  if command -v flock >/dev/null && { exec 9>"$1.lock"; } 2>/dev/null && ! flock -n 9; then
    echo "waiting for another set-up of $1" >&2
    flock 9
  fi
}

# Whether the stamp contains what is wanted; a FIFO would never end: is_there STAMP WANTED
is_there() { [ -f "$1" ] && [ -r "$1" ] && { [ "$(cat "$1")" = "$2" ]; } 2>/dev/null; }

# Installs with pip within SETUP_TIMEOUT and then writes the stamp. FAILED is the message for a failure:
# install ENVIRONMENT STAMP WANTED FAILED WORDS...
install() {
  local venv=$1 stamp=$2 wanted=$3 failed=$4 limit=() status=0 group
  shift 4
  if command -v timeout >/dev/null; then limit=(timeout "$SETUP_TIMEOUT"); fi
  set -m # a separate process group, so that compilers end with pip
  PYTHONUNBUFFERED=1 ${limit[@]+"${limit[@]}"} "$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
    --progress-bar=off "$@" 2>&1 | progress >"$venv/set-up.log" &
  group=$(jobs -p)
  set +m
  trap 'kill -- "-$group"; echo "interrupted; run the same command to continue" >&2; exit 130' INT TERM HUP
  wait %% || status=$?
  kill -- "-$group" 2>/dev/null || true # processes that pip left running
  trap - INT TERM HUP
  if [ "$status" = 124 ]; then
    echo "error: set-up took longer than SETUP_TIMEOUT=$SETUP_TIMEOUT seconds; to continue, run the same command," \
      "for example with SETUP_TIMEOUT=$((4 * SETUP_TIMEOUT))" >&2
  elif [ "$status" != 0 ]; then
    grep '^ERROR' "$venv/set-up.log" >&2 || true
    echo "error: $failed; $venv/set-up.log has the output of pip" >&2
  else
    # With PYTHONDONTWRITEBYTECODE, as in many images, pip does not compile, and every run would compile TensorFlow.
    env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -m compileall -qq -j0 "$venv/lib" || true # not every file is Python 3
    printf '%s' "$wanted" >"$stamp"
    return
  fi
  return 1
}

# Installs requirements in the versions of constraints.txt: install_files ENVIRONMENT STAMP WANTED REQUIREMENTS...
install_files() {
  local venv=$1 stamp=$2 wanted=$3 files=() file
  shift 3
  for file; do files+=(-r "$file"); done
  install "$venv" "$stamp" "$wanted" \
    "installing $* failed; check that the package index is reachable, or set PIP_INDEX_URL to another" -c constraints.txt "${files[@]}"
}

# Whether the environment is complete and its Python starts: is_set_up ENVIRONMENT WANTED
is_set_up() { is_there "$1/.installed" "$2" && works "$1/bin/python"; }

# Sets up the environment when the requirements, the Python or the presence of a GPU have changed since the last time.
setup() {
  local venv=${VENV:-.venv} wanted python files=(requirements.txt requirements-dev.txt)
  works "$venv/bin/python" || can_make "$venv"
  python=$(python_for_setup "$venv")
  if has_gpu; then files+=(requirements-gpu.txt); fi
  wanted=$(cat "${files[@]}" requirements-mlperf.txt constraints.txt; "$python" --version)
  if is_set_up "$venv" "$wanted"; then return; fi
  can_make "$venv"
  lock "$venv"
  if is_set_up "$venv" "$wanted"; then exec 9>&-; return; fi
  echo "setting up $venv with $("$python" --version) (first use: about 70 packages; a minute or more)" >&2
  make_environment "$venv" "$python"
  install_files "$venv" "$venv/.installed-most" "$wanted" "${files[@]}"
  install "$venv" "$venv/.installed" "$wanted" "installing requirements-mlperf.txt failed" --no-deps -r requirements-mlperf.txt
  exec 9>&-
}

# Prints what the operators for CPUs depend on, and which libraries exist, with their bytes: kernels_wanted COMPILER
kernels_wanted() {
  local file
  cat models/extension/*.[ch] models/extension/{build,library}.py | cksum
  grep -m 1 '^flags' /proc/cpuinfo 2>/dev/null | grep -ow 'fma\|avx2\|avx512[a-z0-9_]*' || true # checkouts can be shared
  grep '^tensorflow' requirements.txt
  echo "$1"
  for file in models/extension/kernels-*.so; do
    if [ -f "$file" ] && [ -r "$file" ]; then cksum "$file"; else echo "$file"; fi
  done
}

# Compiles and tests the faster operators for CPUs once, again when what they depend on changes. Without them TensorFlow's
# do the same, so that nothing of this is an error.
setup_kernels() {
  local venv=${VENV:-.venv} words=${CC:-cc} compiler stamp
  if [ "${RNN_SCALING_OPERATORS:-}" = off ] || ! [ -w "$venv" ]; then return; fi
  compiler=$(command -v "${words%% *}") || compiler=
  stamp=$venv/.kernels-$(cksum <<<"$PWD" | cut -d' ' -f1) # checkouts can share an environment
  if is_there "$stamp" "$(kernels_wanted "$compiler")"; then return; fi
  lock "$venv"
  if is_there "$stamp" "$(kernels_wanted "$compiler")"; then exec 9>&-; return; fi
  if [ "$HOSTTYPE-$OSTYPE" != x86_64-linux-gnu ]; then
    echo "faster CPU kernels: not supported yet on $HOSTTYPE $OSTYPE, TensorFlow's are used" >&2
  elif [ -z "$compiler" ] && ! compgen -G 'models/extension/kernels-*.so' >/dev/null; then
    echo "faster CPU kernels: not built, there is no C compiler; steps of LSTMs take up to 1.4 times as long;" \
      "on Debian and Ubuntu: apt-get install gcc libc6-dev" >&2
  else
    "$venv/bin/python" -m rnn_scaling.models.extension.build >&2 2>"$venv/kernels.log" || {
      echo "faster CPU kernels: not used, their set-up ended with status $?; $venv/kernels.log has its output" >&2
      rm -f models/extension/kernels-*.so || true # what ended their test would end each run
    }
  fi
  if [ -e "$stamp" ] && ! [ -f "$stamp" ]; then
    echo "faster CPU kernels: $stamp is not a file, so each command tests them again; remove it" >&2
  else
    printf '%s' "$(kernels_wanted "$compiler")" 2>/dev/null >"$stamp" || true
  fi
  exec 9>&-
}

# Adds TensorBoard's Profile tab to the environment.
setup_profile() {
  local venv=${VENV:-.venv} wanted
  wanted=$(cat requirements-profile.txt constraints.txt)
  if is_there "$venv/.installed-profile" "$wanted"; then return; fi
  echo "adding the Profile tab to $venv (first use: 40 packages, 230 MB; a minute or more)" >&2
  install_files "$venv" "$venv/.installed-profile" "$wanted" requirements-profile.txt && return
  echo "error: without --profile, ./run.sh tensorboard shows all other tabs" >&2
  return 1
}

# Builds the documents as a site with packages in a separate environment; "serve" shows it: make_site [MKDOCS_WORDS...]
make_site() {
  local python venv wanted
  python=$(python_of "$PWD") venv=${VENV:-.venv}-docs
  wanted=$(cat requirements-docs.txt constraints.txt; "$python" --version)
  if ! is_there "$venv/.installed" "$wanted"; then
    make_environment "$venv" "$python"
    install_files "$venv" "$venv/.installed" "$wanted" requirements-docs.txt
  fi
  export RNN_SCALING_PYTHON=$python NO_MKDOCS_2_WARNING=1
  if [ $# -gt 0 ]; then
    "$venv/bin/python" -m mkdocs "$@"
  else
    "$venv/bin/python" -m mkdocs build --strict --quiet
    echo "build/docs/index.html is the site; ./run.sh docs serve shows it with its search"
  fi
}

# Whether programs can be built with MPI. The package openmpi-bin has mpicxx but not the headers.
has_mpi() { mpicxx -E -x c++ - <<<'#include <mpi.h>' >/dev/null 2>&1; }

# Builds Horovod for the TensorFlow and Python of the environment, with MPI if it is installed, otherwise with Gloo only.
setup_horovod() {
  local venv=${VENV:-.venv} mpi=HOROVOD_WITHOUT_MPI parts="Gloo alone" wanted tool build missing=()
  if has_mpi; then mpi=HOROVOD_WITH_MPI parts="Gloo and MPI"; fi
  wanted=$(cat requirements-horovod.txt tools/horovod-cxx; grep '^tensorflow==' requirements.txt
    "$venv/bin/python" --version; echo "$parts")
  if is_there "$venv/.installed-horovod" "$wanted"; then return; fi
  for tool in cmake make g++; do command -v "$tool" >/dev/null || missing+=("$tool"); done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "error: building Horovod needs ${missing[*]}; on Debian and Ubuntu: apt-get install ${missing[*]}" >&2
    return 1
  fi
  lock "$venv"
  if is_there "$venv/.installed-horovod" "$wanted"; then return; fi
  if [ "$parts" = "Gloo alone" ]; then
    echo "MPI is not installed; to add it, run apt-get install libopenmpi-dev openmpi-bin and the same command again" >&2
  fi
  build=$venv/horovod-build # kept until Horovod is installed, so that an interrupted build continues
  echo "building Horovod with $parts into $venv (minutes: two on two cores)" >&2
  # pip's cache may contain a wheel for another TensorFlow.
  export CXX=$PWD/tools/horovod-cxx MAKEFLAGS=-j$(nproc) HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 "$mpi=1"
  export HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
  if ! is_there "$build/wanted" "$wanted $CXX"; then # CMake keeps the path of the compiler
    rm -rf "$build" && mkdir "$build"
    "$venv/bin/python" -m pip download --quiet --disable-pip-version-check --no-input --no-build-isolation --no-deps \
      --no-binary=horovod --dest="$build" "$(grep -o '^horovod==[^ ]*' requirements-horovod.txt)" >&2
    "$venv/bin/python" -m tarfile -e "$build"/horovod-*.tar.gz "$build"
    printf '%s' "$wanted $CXX" >"$build/wanted"
  fi
  install "$venv" "$venv/.installed-horovod" "$wanted" "building Horovod failed (rm -r $build and the same command start again)" \
    --use-pep517 --no-build-isolation --no-deps --no-cache-dir --force-reinstall "$build"/horovod-*/ -r requirements-horovod.txt
  rm -rf "$build"
}

# Creates a separate environment for each framework: setup_frameworks NAMES...
setup_frameworks() {
  local venv=${VENV:-.venv} name folder wanted names=("$@")
  [ $# -gt 0 ] || names=(torch jax keras)
  for name in "${names[@]}"; do
    if [ ! -f "requirements/$name.txt" ]; then
      echo "error: setup-frameworks $name: expected torch, jax or keras" >&2
      return 2
    fi
  done
  for name in "${names[@]}"; do
    folder=$venv-$name
    wanted=$(cat "requirements/$name.txt" constraints.txt; "$venv/bin/python" --version)
    if is_there "$folder/.installed" "$wanted"; then continue; fi
    make_environment "$folder" "$venv/bin/python"
    echo "setting up $folder for --framework=$name (docs/frameworks.md)" >&2
    install_files "$folder" "$folder/.installed" "$wanted" "requirements/$name.txt"
  done
}

# How the user called this script, so that printed commands can be pasted.
program() {
  case "${BASH_SOURCE[0]}" in
    */*) printf '%q' "${BASH_SOURCE[0]}" ;;
    *) printf './%q' "${BASH_SOURCE[0]}" ;;
  esac
}

# Prints the environment's Python: python_of ROOT
python_of() {
  case "${VENV:-}" in
    /*) echo "$VENV/bin/python" ;;
    *) echo "$1/${VENV:-.venv}/bin/python" ;;
  esac
}

# Sets up, and runs the commands of run.sh itself: main ROOT WORDS...
main() {
  cd "$1"
  shift
  local command=${1:-} names close old new
  SETUP_TIMEOUT=${SETUP_TIMEOUT:-$([ "$command" = setup-horovod ] && echo 7200 || echo 900)}
  case "$command" in
    -h | --help | help) usage; return ;;
    --version | version) sed -nE 's/^VERSION = "(.*)"$/rnn_scaling \1/p' rnn_scaling/system/entry.py; return ;;
    "" | test | lint | docs | setup | setup-horovod | setup-frameworks) ;;
    *)
      names=$(commands | cut -d'|' -f1)
      if ! grep -qxF -e "$command" <<<"$names"; then
        while IFS='|' read -r old new; do
          [ "$old" = "$command" ] || continue
          echo "error: $old is now part of ${new%% *}; use $(program) $new" >&2
          return 2
        done <<<"$(moved)"
        # shellcheck disable=SC2086 # a word per name
        close=$(python3 -c 'import difflib, sys; print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:], 1))' \
          "$command" test lint docs setup $names 2>/dev/null) || close=""
        [ -n "$close" ] && close="did you mean $close?" || close="--help lists them"
        echo "error: $command is not a command of run.sh; $close" >&2
        return 2
      fi
      ;;
  esac
  [ $# -gt 0 ] && shift
  if ! [[ "$SETUP_TIMEOUT" =~ ^[1-9][0-9]*$ ]]; then
    echo "error: SETUP_TIMEOUT=$SETUP_TIMEOUT must be a whole number of seconds, 1 or more" >&2
    return 2
  fi
  setup
  if [ "$command" != lint ] && [ "$command" != docs ]; then setup_kernels; fi
  if [ "$command" = tensorboard ] && [[ " $* " =~ \ --profile(=true)?\  ]]; then setup_profile; fi
  local bin=${VENV:-.venv}/bin
  case "$command" in
    setup-horovod) setup_horovod ;;
    setup-frameworks) setup_frameworks "$@" ;;
    lint) "$bin/ruff" check . && "$bin/ruff" format --check . && "$bin/python" -m mypy && "$bin/python" tools/docs/links.py ;;
    docs) make_site "$@" ;;
  esac
}

# The shell that starts the suite sets no variable and changes no folder, so that a user's program gets the caller's
# environment: run ROOT WORDS...
run() {
  case "${2:-}" in
    -h | --help | help | --version | version | lint | docs | setup | setup-*) main "$@"; return ;;
  esac
  (main "$@")
  case "${2:-}" in
    test) cd "$1" && exec "$(python_of "$1")" -m pytest --numprocesses=3 --dist=loadfile "${@:3}" ;;
  esac
  exec "$(python_of "$1")" "$1/rnn_scaling/system/processes/start.py" "$(program)" rnn_scaling "${2:-sweep}" "${@:3}"
}

# On one line, because bash continues to read this file, which may have changed.
run "$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)" "$@"; exit
