#!/bin/sh
# run.sh SCRIPT ARGUMENT...: run a cross check, or say why it cannot run and exit
# with 77, which ctest reports as skipped.
set -u
dir=$(dirname "$0")
script=$1
shift

skip()
{
    echo "skipped: $1"
    exit 77
}

command -v node >/dev/null || skip "Node.js is not installed"
major=$(node -p 'process.versions.node.split(".")[0]')
[ "$major" -ge 18 ] || skip "Node.js $major is installed, expected at least 18"
[ -f "$dir/node_modules/.package-lock.json" ] ||
    skip "the packages are not installed; run tests/node/setup.sh"
exec node "$dir/$script" "$@"
