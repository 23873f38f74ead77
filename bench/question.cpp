// SPDX-License-Identifier: MIT
#include "question.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

namespace bench {

void Results::ReportRuns(std::vector<Run> const& runs) {
  for (Run const& run : runs) {
    if (run.run_type != Run::RT_Iteration) continue;
    auto& counters = samples_[run.run_name.function_name];
    counters["cpu_ns"].push_back(run.GetAdjustedCPUTime());
    for (auto const& [name, counter] : run.counters) counters[name].push_back(counter.value);
  }
}

double Results::median(std::string const& benchmark, std::string const& counter) const {
  auto const of_benchmark = samples_.find(benchmark);
  if (of_benchmark == samples_.end()) return std::numeric_limits<double>::quiet_NaN();
  auto const of_counter = of_benchmark->second.find(counter);
  if (of_counter == of_benchmark->second.end()) return std::numeric_limits<double>::quiet_NaN();
  auto samples = of_counter->second;
  auto const middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

Row::Row(std::string const& head) : line_{head} {
  line_.resize(34, ' ');
}

Row::~Row() {
  std::puts(line_.c_str());
}

Row& Row::number(double value, int decimals) {
  char cell[32] = "         -";
  if (!std::isnan(value)) std::snprintf(cell, sizeof cell, " %9.*f", decimals, value);
  line_ += cell;
  return *this;
}

Row& Row::text(std::string const& value) {
  line_ += value.size() < 10 ? std::string(10 - value.size(), ' ') + value : " " + value;
  return *this;
}

Row& Row::at_least(double value, double target) {
  return verdict(value, ">=", target, value >= target);
}

Row& Row::at_most(double value, double target) {
  return verdict(value, "<=", target, value <= target);
}

Row& Row::verdict(double value, char const* relation, double target, bool met) {
  if (std::isnan(value)) return *this;
  char cell[64];
  std::snprintf(cell, sizeof cell, "   %.2f (target %s %g: %s)", value, relation, target,
                met ? "met" : "NOT MET");
  line_ += cell;
  return *this;
}

}  // namespace bench
