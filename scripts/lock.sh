#!/usr/bin/env bash
# Writes the locks anew, from pyproject.toml, with the hashes of the public registry and no trace of where they came
# from: the user's pip settings (another index, a folder of wheels) are left out on purpose.
#
# dev.txt is what `make demo` and `make test` install; the others are added to it and agree with it.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_CONFIG_FILE=/dev/null
unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_FIND_LINKS
export CUSTOM_COMPILE_COMMAND="scripts/lock.sh"

compile() {
    local output="requirements/$1.txt"
    shift
    echo "writing $output"
    .venv/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras \
        --no-emit-index-url --no-emit-trusted-host --no-emit-options --output-file "$output" pyproject.toml "$@"
}

case "${1:-all}" in
    all | dev) compile dev --extra dev --extra spark --extra gateway --extra dtls ;;&
    all | spark) compile spark --extra spark --constraint requirements/dev.txt ;;&
    all | gateway) compile gateway --extra gateway --constraint requirements/dev.txt ;;&
    all | dtls) compile dtls --extra dtls --constraint requirements/dev.txt ;;&
    all | bench) compile bench --extra bench --constraint requirements/dev.txt ;;&
esac
