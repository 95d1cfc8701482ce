// A run without a model: a few numbers as weights and optimizer, deterministic in the step, saved as plain bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/run/loop.hpp>

#include "run/events.hpp"
#include "run/files.hpp"

namespace fake {

using rlalgo::run::Json;

inline void strip_times(Json& value) {
  if (value.is_object()) {
    for (auto it = value.begin(); it != value.end();)
      it = it.key().starts_with("time/") || it.key().starts_with("train_runtime") ||
                   it.key().starts_with("train_steps_per")
               ? value.erase(it)
               : ++it;
  }
  if (value.is_array()) {  // entries of the metric window: [name, sum, count]
    for (auto it = value.begin(); it != value.end();)
      it = it->is_array() && !it->empty() && it->front().is_string() &&
                   it->front().get<std::string>().starts_with("time/")
               ? value.erase(it)
               : ++it;
  }
  if (value.is_structured())
    for (auto& entry : value) strip_times(entry);
  if (value.is_object() && value.contains("files")) {
    value["files"].erase("trainer_state.json");  // it holds times
    value.erase("xxh64");                        // so has its text
    value.erase("run");                          // every run has an id of its own
  }
}

// The text of a JSON or JSONL file without anything that is a time.
inline std::string without_times(const std::string& text) {
  Json whole = Json::parse(text, nullptr, false);
  if (!whole.is_discarded()) {
    strip_times(whole);
    return whole.dump(1);
  }
  std::string out;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    Json line = Json::parse(text.substr(begin, end - begin));
    strip_times(line);
    out += line.dump() + "\n";
  }
  return out;
}

// What two runs must agree on: every file except reports and the record of when the run started; of events, what they
// say.
inline std::map<std::string, std::string> comparable(const fs::path& output_dir) {
  std::map<std::string, std::string> out;
  for (const auto& [name, content] : tree(output_dir)) {
    if (name.starts_with("runs/") || name == "report.html" || name == "run.json") continue;
    out[name] = name.ends_with(".json") || name.ends_with(".jsonl") ? without_times(content) : content;
  }
  if (fs::exists(output_dir / "runs")) out["runs"] = events_without_times(output_dir);
  return out;
}

class Run {
 public:
  explicit Run(std::size_t size = 64) : weights_(size), moments_(size) {}

  rlalgo::run::Callbacks callbacks() {
    return {.train_step = [this](std::int64_t step) { return train_step(step); },
            .evaluate = {},
            .save_model = [this](const fs::path& dir) { save(dir / "model.safetensors", weights_); },
            .save_state =
                [this](const fs::path& dir) {
                  save(dir / "optimizer.safetensors", moments_);
                  return Json{{"cursor", cursor_}};
                },
            .restore_state =
                [this](const fs::path& dir, const Json& state) {
                  load(dir / "model.safetensors", weights_);
                  load(dir / "optimizer.safetensors", moments_);
                  cursor_ = state.at("cursor").get<std::int64_t>();
                },
            .samples =
                [this](std::size_t limit) {
                  std::vector<rlalgo::run::Sample> out;
                  for (std::size_t i = 0; i < std::min<std::size_t>(limit, 2); ++i)
                    out.push_back({"What is 1 < 2?",
                                   "answer " + std::to_string(cursor_),
                                   {{"accuracy", weights_[i]}},
                                   weights_[0],
                                   i == 1});
                  return out;
                }};
  }

  rlalgo::run::StepResult train_step(std::int64_t step) {
    if (before_step) before_step(step);
    rlalgo::run::StepResult result;
    result.loss = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const double gradient =
          rlalgo::core::uniform({11, rlalgo::core::Stream::test}, static_cast<std::uint64_t>(step), i) -
          0.3 * weights_[i];
      moments_[i] = 0.9 * moments_[i] + 0.1 * gradient;
      weights_[i] += 0.1 * moments_[i];
      result.loss += gradient;
    }
    ++cursor_;
    result.grad_norm = 1.0 / static_cast<double>(step + 3);
    result.learning_rate = 0.1 * static_cast<double>(step);
    result.epoch = static_cast<double>(step + 1) / 4.0;
    result.tokens = 10;
    if (step % 2 == 0) result.metrics.mean("reward", weights_[0], 1.0);
    result.metrics.mean("kl", step % 3 == 0 ? 0.0 : weights_[1], step % 3 == 0 ? 0.0 : 1.0);  // NaN every third step
    result.metrics.last("num_tokens", static_cast<double>(cursor_ * 10));
    result.seconds = {{"generate", 0.001}};
    return result;
  }

  [[nodiscard]] const std::vector<double>& weights() const { return weights_; }

  std::function<void(std::int64_t)> before_step;  // may throw, kill, wait …
  int chunks = 1;                                 // a file is written in so many pieces …
  std::chrono::microseconds pause{0};             // … with a pause after each
  std::function<void()> after_chunk;

 private:
  void save(const fs::path& path, const std::vector<double>& values) const {
    rlalgo::os::AtomicFile file(path);
    const auto* bytes = reinterpret_cast<const char*>(values.data());
    const std::size_t size = values.size() * sizeof(double);
    for (int c = 0; c < chunks; ++c) {
      const std::size_t begin = size * static_cast<std::size_t>(c) / static_cast<std::size_t>(chunks);
      const std::size_t end = size * static_cast<std::size_t>(c + 1) / static_cast<std::size_t>(chunks);
      file.write(bytes + begin, end - begin);
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
      if (after_chunk) after_chunk();
    }
    file.commit();
  }
  static void load(const fs::path& path, std::vector<double>& values) {
    const std::string content = read(path);
    values.resize(content.size() / sizeof(double));
    std::memcpy(values.data(), content.data(), content.size());
  }
  std::vector<double> weights_;
  std::vector<double> moments_;
  std::int64_t cursor_ = 0;
};

inline rlalgo::run::LoopConfig config(const fs::path& output_dir, std::int64_t max_steps) {
  rlalgo::run::LoopConfig c;
  c.output_dir = output_dir;
  c.title = "fake run";
  c.max_steps = max_steps;
  c.logging_steps = 3;
  c.save = rlalgo::run::Cadence::steps(2);
  c.progress = false;
  c.signals = true;
  c.report = false;
  c.identity = {{"seed", 7}};
  c.settings = {{"learning_rate", 0.1}};
  return c;
}

}  // namespace fake
