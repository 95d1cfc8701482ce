// Definitions of tracker.hpp.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/remote/detail/python_process.hpp>
#include <rlalgo/remote/detail/tracker_source.hpp>
#include <rlalgo/remote/tracker.hpp>
#include <rlalgo/run/run_info.hpp>

namespace rlalgo::remote {

RLALGO_INLINE Tracker::Tracker(TrackerConfig config) : config_(std::move(config)) {}

RLALGO_INLINE Tracker::~Tracker() { on_finish(); }

RLALGO_INLINE void Tracker::on_start(const run::RunStart& start) {
  if (thread_.joinable()) return;
  output_dir_ = start.output_dir.string();
  const run::Json info = run::read_run_info(start.output_dir);
  const std::filesystem::path plain = (start.output_dir / "").lexically_normal().parent_path();
  const Json run = {{"id", info.value("id", "")},
                    {"title", start.title},
                    {"name", plain.filename().empty() ? start.title : plain.filename().string()},
                    {"settings", config_.settings}};
  thread_ = std::thread(
      [this,
       load = Json{{"op", "load"}, {"tracker", config_.name}, {"environment", config_.environment}, {"run", run}}] {
        work(load);
      });
}

RLALGO_INLINE void Tracker::on_step(const run::StepDone&) { tell_what_was_said(); }

RLALGO_INLINE void Tracker::on_record(const run::Record& record) {
  Json values = Json::object();
  for (const auto& [name, value] : record.values)
    if (std::isfinite(value)) values[name] = value;
  {
    const std::lock_guard lock(mutex_);
    if (!over_ && waiting_.size() < config_.most_waiting)
      waiting_.push_back({{"step", record.step}, {"epoch", record.epoch}, {"values", std::move(values)}});
    else
      ++dropped_;
  }
  changed_.notify_all();
  tell_what_was_said();
}

RLALGO_INLINE void Tracker::on_finish() {
  if (!thread_.joinable()) return;
  const run::Json info = run::read_run_info(output_dir_);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    failed_ = info.is_object() && info.value("status", "") == "failed";
    end_ = os::Deadline(config_.end_seconds);
  }
  changed_.notify_all();
  thread_.join();
  tell_what_was_said();
}

RLALGO_INLINE double Tracker::seconds_left(double otherwise) {
  const std::lock_guard lock(mutex_);
  if (!ending_) return otherwise;
  return std::min(otherwise, std::max(0.001, static_cast<double>(end_.milliseconds_left()) / 1e3));
}

RLALGO_INLINE std::vector<Tracker::Json> Tracker::take() {
  constexpr std::size_t most = 64;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
  std::vector<Json> out;
  while (!waiting_.empty() && out.size() < most) {
    out.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return out;
}

RLALGO_INLINE void Tracker::say(const std::string& text) {
  const std::lock_guard lock(mutex_);
  said_.push_back(config_.name + ": " + text);
}

RLALGO_INLINE void Tracker::give_up(const std::string& why) {
  std::size_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    lost = waiting_.size();
    waiting_.clear();
    dropped_ += lost;
  }
  say("warning: it gets nothing more: " + why + "; metrics.jsonl and TensorBoard have everything");
}

RLALGO_INLINE void Tracker::tell_what_was_said() {
  std::vector<std::string> said;
  {
    const std::lock_guard lock(mutex_);
    said.swap(said_);
  }
  if (config_.tell)
    for (const std::string& text : said) config_.tell(text);
}

// On its own thread, with the process.
RLALGO_INLINE void Tracker::work(Json load) {
  using Failure = detail::PythonProcess::Failure;
  using Trouble = detail::PythonProcess::Trouble;
  detail::PythonProcess process;
  process.set_stop_seconds(config_.end_seconds);  // a run that is interrupted is reported, too
  const auto handed = [&](const Json& question, double seconds) {
    auto result = process.ask(question, seconds_left(seconds));
    if (const auto* failure = std::get_if<Failure>(&result)) {
      give_up(failure->trouble == Trouble::late ? "no answer in " + std::to_string(std::lround(failure->seconds)) + " s"
              : failure->trouble == Trouble::ended ? "its process ended, " + failure->found
              : failure->answer.is_object()        ? failure->answer.value("message", failure->found)
                                                   : failure->found);
      return Json(nullptr);
    }
    return std::get<Json>(result);
  };
  try {
    if (const int error = process.start(config_.python, detail::tracker_source); error != 0)
      return give_up(process.program() + " cannot be started: " + std::strerror(error));
    const Json begun = handed(load, config_.start_seconds);
    if (begun.is_null()) return;
    if (const std::string place = begun.value("place", ""); !place.empty()) say(place);
    for (std::vector<Json> records = take(); !records.empty(); records = take())
      if (handed({{"op", "log"}, {"records", records}}, config_.call_seconds).is_null()) return;
    if (handed({{"op", "finish"}, {"failed", failed_}}, config_.end_seconds).is_null()) return;
    const std::lock_guard lock(mutex_);
    if (dropped_ > 0)
      said_.push_back(
          config_.name + ": warning: " + std::to_string(dropped_) +
          " records were dropped, for it took them too slowly; metrics.jsonl and TensorBoard have everything");
  } catch (const std::exception& error) {  // a stop that was asked for, above all
    give_up(error.what());
  }
}

}  // namespace rlalgo::remote
