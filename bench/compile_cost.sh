#!/bin/sh
# SPDX-License-Identifier: MIT
#
# compile_cost.sh INCLUDE_DIR [COMPILER]: what including and using db_bulkhead.hpp costs in compile time and
# code size, beside <thread> and <mutex> alone.
set -eu
include=$1
compiler=${2:-${CXX:-g++}}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

include_in() {  # NAME USE HEADER...: a file that includes the headers and has one function, which uses them
  name=$1 use=$2
  shift 2
  for header in "$@"; do echo "#include <$header>"; done > "$work/$name.cpp"
  echo "$use" >> "$work/$name.cpp"
}
lock='std::mutex m; int answer() { std::lock_guard lock{m}; return 42; }'
admit='bool answer(db_bulkhead::AdmissionGate& gate) { return bool(gate.try_admit(std::chrono::seconds{1})); }'

compile() {  # NAME
  "$compiler" -std=c++20 -O2 -I "$include" -c "$work/$1.cpp" -o "$work/$1.o"
}

milliseconds() {  # NAME: median of 5 compilations
  for _ in 1 2 3 4 5; do
    start=$(date +%s%N)
    compile "$1"
    echo $((($(date +%s%N) - start) / 1000000))
  done | sort -n | sed -n 3p
}

report() {  # NAME LABEL
  printf '%-34s %6s ms %8s bytes of code\n' "$2" "$(milliseconds "$1")" "$(size "$work/$1.o" | awk 'NR == 2 {print $1}')"
}

echo "Compile time and code size of including and using ($compiler -O2)"
include_in std "$lock" thread mutex
include_in more "$lock" thread mutex chrono condition_variable functional optional stdexcept stop_token string
include_in gate "$admit" db_bulkhead/admission.hpp
report std '<thread> and <mutex>'
report more '  and what the library needs of std'
report gate 'db_bulkhead/admission.hpp'
if [ -e "$include/db_bulkhead/db_bulkhead.hpp" ]; then
  include_in bulkhead "$admit" db_bulkhead/db_bulkhead.hpp
  report bulkhead 'db_bulkhead/db_bulkhead.hpp'
fi
