#!/bin/sh
# SPDX-License-Identifier: MIT
#
# instructions.sh BENCH_INSTRUCTIONS: how many instructions one admission and release
# take with a free permit, the loop around them (3) included. Counted by valgrind, so
# noise on the machine does not matter.
set -eu
program=$1
command -v valgrind > /dev/null || { echo "instructions: valgrind is not installed"; exit 0; }

counted() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" 2>&1 |
    awk '/Collected/ {print $NF}'
}

few=$(counted 100000)
many=$(counted 200000)
awk -v few="$few" -v many="$many" 'BEGIN {
  each = (many - few) / 100000
  printf "Instructions of admit + release, one free permit: %.1f (target <= 30: %s)\n", each,
         each <= 30 ? "met" : "NOT MET"
}'
