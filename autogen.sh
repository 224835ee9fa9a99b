#!/bin/sh
# Creates ./configure and the Makefile.in files from a fresh clone.
set -e
cd "$(dirname "$0")"
mkdir -p build-aux
exec autoreconf --force --install --warnings=all,no-obsolete "$@"
