#!/bin/sh
# Install the pinned packages that the cross checks in this folder compare with.
#
# Does nothing when they are there.  Fails with one line when there is no npm or
# no registry; the checks then report themselves as skipped.
set -u
cd "$(dirname "$0")" || exit 1

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    echo "tests/node: Node.js and npm are not installed" >&2
    exit 1
fi
# npm leaves a copy of the lock file behind when an installation is complete.
done=node_modules/.package-lock.json
if [ -f "$done" ] && [ ! package-lock.json -nt "$done" ] &&
    [ ! package.json -nt "$done" ]; then
    exit 0
fi
if ! npm ci --no-progress --fetch-retries=1 --fetch-timeout=60000 \
    >npm.log 2>&1; then
    echo "tests/node: npm ci failed: $(grep -m1 'npm error' npm.log)" >&2
    rm -f npm.log
    exit 1
fi
rm -f npm.log
touch "$done"
