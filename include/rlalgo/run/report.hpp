// report.html: the run on one self-contained page (no external resources): curves, checkpoints, sample completions,
// settings. Values are shown under the pointer; checkpoints are links relative to the page.
//
// Built from metrics.jsonl, samples.jsonl and run.json of an output_dir, so it can be made while the run goes on, after
// it was killed, and by `rlalgo report DIR`. A noisy curve of 40 points or more shows its values faintly and a
// two-sided exponential average (0.8) in full; more than 300 points are averaged in runs. Samples of at most 40 logged
// steps are shown.
//
// Errors: [rlalgo.run.10] no metrics.jsonl in the directory; [rlalgo.run.11] a damaged line (file:line);
// [rlalgo.os.1] the page cannot be written.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/run/observer.hpp>

namespace rlalgo::run {

// Writes output_dir/report.html and returns its path.
std::filesystem::path write_report(const std::filesystem::path& output_dir);

// The page of one run, or of several beside each other: curves of each metric overlaid, last and best values, settings that
// differ. `stamp`: that of a page that is served, which asks for `stamp` beside it every two seconds and shows what is new.
[[nodiscard]] std::string report_html(std::span<const std::filesystem::path> output_dirs,
                                      const std::string& stamp = {});

// Another text whenever a log of one of them has changed.
[[nodiscard]] std::string report_stamp(std::span<const std::filesystem::path> output_dirs);

// Keeps report.html of a run in progress fresh: at most every `seconds`, and at its end.
class ReportWriter : public Observer {
 public:
  explicit ReportWriter(double seconds = 15.0) : seconds_(seconds) {}
  RLALGO_INLINE void on_start(const RunStart& start) override;
  RLALGO_INLINE void on_record(const Record&) override;
  RLALGO_INLINE void on_finish() override;

 private:
  double seconds_;
  std::filesystem::path output_dir_;
  os::Stopwatch since_;
};

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/report_impl.hpp>
#endif
