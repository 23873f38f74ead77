// SPDX-License-Identifier: MIT
//
// One question is a group of benchmarks that are run in turns, sample by sample and in
// random order, and the table that is printed from the medians. Times on a shared
// machine move by tens of percent, so what counts are ratios within one question.
#ifndef DB_BULKHEAD_BENCH_QUESTION_HPP
#define DB_BULKHEAD_BENCH_QUESTION_HPP

#include <benchmark/benchmark.h>

#include <map>
#include <string>
#include <vector>

namespace bench {

/// How much time may be spent: the number of samples of each benchmark, and a factor on their length.
struct Effort {
  int samples = 9;
  double length = 1.0;
  bool quick = false;
};

/// Gathers every sample of every benchmark, by the benchmark's name and the counter's.
class Results : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(Context const&) override { return true; }
  void ReportRuns(std::vector<Run> const& runs) override;

  /// The median of the samples; NaN where there is none. `counter` may be "cpu_ns": processor time of one
  /// iteration.
  double median(std::string const& benchmark, std::string const& counter) const;

 private:
  std::map<std::string, std::map<std::string, std::vector<double>>> samples_;
};

struct Question {
  char const* title;
  void (*ask)(Effort const&);  // registers the benchmarks
  void (*answer)(Results const&, Effort const&);
};

extern Question const free_permit;
extern Question const refusal;
extern Question const contended;
extern Question const sleeping;
extern Question const order;
extern Question const hand_off;
extern Question const stop;
extern Question const pool;

/// Registers a benchmark that measures by itself: each sample is one iteration.
template <class Function>
void add_sampled(std::string const& name, Effort const& effort, Function function) {
  benchmark::RegisterBenchmark(name.c_str(), function)
      ->Iterations(1)
      ->Repetitions(effort.samples)
      ->UseManualTime();
}

/// A row of a table: a first column of 34 characters, then numbers of 10 characters.
class Row {
 public:
  explicit Row(std::string const& head);
  Row(Row const&) = delete;
  Row& operator=(Row const&) = delete;
  ~Row();
  Row& number(double value, int decimals);
  Row& text(std::string const& value);
  /// `value` against what it should at least, or at most, be.
  Row& at_least(double value, double target);
  Row& at_most(double value, double target);

 private:
  Row& verdict(double value, char const* relation, double target, bool met);
  std::string line_;
};

}  // namespace bench

#endif
