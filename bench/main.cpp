// SPDX-License-Identifier: MIT
//
// bench_admission [--quick] [Google Benchmark's own options]: asks one question after
// another and prints a table for each. Targets are printed beside what was measured;
// none of them changes the exit code, for time on a shared machine proves nothing.
// Where other programs keep the processors busy, ratios of contended gates say little.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "question.hpp"

namespace {

void put(bench::Question const& question, bench::Effort const& effort) {
  question.ask(effort);
  bench::Results results;
  if (benchmark::RunSpecifiedBenchmarks(&results) > 0) {
    std::printf("\n%s\n", question.title);
    question.answer(results, effort);
    std::fflush(stdout);
  }
  benchmark::ClearRegisteredBenchmarks();
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  std::string interleave = "--benchmark_enable_random_interleaving=true";
  arguments.insert(arguments.begin() + 1, interleave.data());
  bench::Effort effort;
  auto const is_quick = [](char const* argument) { return std::string_view{argument} == "--quick"; };
  if (std::erase_if(arguments, is_quick) > 0) effort = {.samples = 3, .length = 0.5, .quick = true};

  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;

  std::printf("Medians of %d or more interleaved samples, %u processors. Ratios count, not nanoseconds.\n",
              effort.samples, std::thread::hardware_concurrency());
  for (bench::Question const* question :
       {&bench::free_permit, &bench::refusal, &bench::contended, &bench::sleeping, &bench::order,
        &bench::hand_off, &bench::stop, &bench::pool}) {
    put(*question, effort);
  }
}
