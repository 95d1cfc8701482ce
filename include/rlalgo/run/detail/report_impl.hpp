// Definitions of report.hpp: the page itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/os/atomic_file.hpp>
#include <rlalgo/run/detail/report_comparison.hpp>
#include <rlalgo/run/detail/report_data.hpp>
#include <rlalgo/run/detail/report_style.hpp>
#include <rlalgo/run/detail/report_timeline.hpp>
#include <rlalgo/run/health.hpp>
#include <rlalgo/run/progress.hpp>
#include <rlalgo/run/report.hpp>

namespace rlalgo::run {

namespace detail {

class ReportPage {
 public:
  // `stamp`: of a page that is served (report_stamp()); empty: it is a file.
  explicit ReportPage(ReportData data, std::string stamp = {}) : data_(std::move(data)), stamp_(std::move(stamp)) {}

  [[nodiscard]] std::string html() const {
    const std::string title = text("title").empty() ? "Training run" : text("title");
    std::string out = page_begin(escape_html(title), stamp_);
    out += "<h1>" + escape_html(title) + status() + "</h1>\n";
    if (!text("started").empty()) out += "<p class=\"sub\">started " + escape_html(text("started")) + "</p>\n";
    if (!text("error").empty()) out += "<p class=\"note\">" + escape_html(text("error")) + "</p>\n";
    out += tiles();
    if (data_.records.empty()) out += "<p class=\"sub\">Nothing has been logged yet.</p>\n";
    if (!data_.names.empty()) {
      std::string section;
      for (const Chart& chart : arrange_charts(data_)) {
        if (chart.section != section)
          out += (section.empty() ? "" : "</div>\n") + ("<h2>" + chart.section) + "</h2><div class=\"charts\">\n";
        section = chart.section;
        out += ChartDrawing(chart).html();
      }
      out += "</div>\n";
    }
    out += Timeline(data_.records).html() + health_table() + checkpoints() + pairs() + samples() + settings();
    return out + page_end("metrics.jsonl and samples.jsonl of this directory", !stamp_.empty());
  }

 private:
  [[nodiscard]] std::string health_table() const {
    const std::vector<HealthFinding> findings = health(data_.records);
    if (findings.empty()) return "";
    static constexpr const char* words[] = {"well", "watch", "alarm"};
    std::string out =
        "<h2>Health</h2><table><tr><th>Metric</th><th class=\"n\">Lately</th><th>Healthy</th><th>State</th>"
        "<th>If not</th></tr>";
    for (const HealthFinding& f : findings) {
      const bool well = f.state == HealthFinding::State::well;
      const HealthRule& rule = *f.rule;
      out +=
          "<tr><td>" + escape_html(f.metric) + "</td><td class=\"n\">" + short_number(f.value) + "</td><td>" +
          (rule.towards != nullptr          ? "no growth to " + std::string(rule.towards)
           : std::isfinite(rule.healthy_to) ? short_number(rule.healthy_from) + " to " + short_number(rule.healthy_to)
                                            : "above " + short_number(rule.healthy_from)) +
          "</td><td class=\"" + (well ? "up" : "down") + "\">" + words[static_cast<int>(f.state)] + "</td><td>" +
          (well ? "" : escape_html(f.advice)) + "</td></tr>";
    }
    return out + "</table>\n";
  }
  // Links to the checkpoints that are there, each with the newest values up to its step.
  [[nodiscard]] std::string checkpoints() const {
    if (data_.checkpoints.empty()) return "";
    std::vector<std::string> shown;
    for (const char* name : {"reward", "eval_reward", "loss", "eval_loss"})
      if (const auto it = data_.points.find(name); it != data_.points.end() && !it->second.empty())
        shown.emplace_back(name);
    std::string out = "<h2>Checkpoints</h2><table><tr><th>Directory</th>";
    for (const std::string& name : shown) out += "<th class=\"n\">" + name + "</th>";
    out += "</tr>";
    for (const std::int64_t step : data_.checkpoints) {
      const std::string name = "checkpoint-" + std::to_string(step);
      out += "<tr><td>" + (stamp_.empty() ? "<a href=\"" + name + "/\">" + name + "</a>" : name) + "</td>";
      for (const std::string& metric : shown) {
        double value = no_value;
        for (const Point& p : data_.points.at(metric))
          if (p.step <= static_cast<double>(step)) value = p.value;
        out += "<td class=\"n\">" + short_number(value) + "</td>";
      }
      out += "</tr>";
    }
    return out + "</table>\n";
  }
  [[nodiscard]] std::string text(const char* key) const {
    return data_.run.contains(key) && data_.run[key].is_string() ? data_.run[key].get<std::string>() : "";
  }
  [[nodiscard]] std::string status() const {
    const std::string s = text("status");
    for (const char* known : {"running", "finished", "stopped", "interrupted", "failed"})
      if (s == known) return "<span class=\"chip " + s + "\">" + s + "</span>";
    return "";
  }

  // Three significant digits.
  [[nodiscard]] static std::string brief(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", value);
    return text;
  }
  // First and newest value of a metric: "0.12 → 0.84".
  [[nodiscard]] std::string change(const std::string& name) const {
    const auto it = data_.points.find(name);
    if (it == data_.points.end() || it->second.empty()) return "";
    const auto& points = it->second;
    if (points.size() == 1) return brief(points[0].value);
    return brief(points.front().value) + " → " + brief(points.back().value);
  }

  [[nodiscard]] std::string tiles() const {
    std::string out = "<div class=\"tiles\">";
    const auto tile = [&](const std::string& value, const char* label) {
      if (!value.empty()) out += "<div class=\"tile\"><b>" + value + "</b><span>" + label + "</span></div>";
    };
    const std::int64_t step = data_.records.empty() ? 0 : data_.records.back().step;
    const bool has_max = data_.run.contains("max_steps") && data_.run["max_steps"].is_number_integer();
    tile(std::to_string(step) + (has_max ? " / " + data_.run["max_steps"].dump() : ""), "steps logged");
    tile(change("reward"), "reward, first → newest");
    tile(change("ebft/alignment"), "alignment, first → newest");
    tile(change("ebft/cfm_loss"), "distance to the ground truth");
    tile(change("eval_reward"), "held-out reward");
    if (!data_.points.contains("reward")) tile(change("loss"), "loss, first → newest");
    const auto tokens = data_.points.find("num_tokens");
    if (tokens != data_.points.end() && !tokens->second.empty())
      tile(short_number(tokens->second.back().value), "tokens");
    const double seconds = training_seconds();
    if (seconds > 0) {
      tile(format_duration(seconds), "time in training steps");
      tile(brief(seconds / static_cast<double>(step)) + " s", "per step");
    }
    return out + "</div>\n";
  }

  // Each record's mean seconds per step times its number of steps.
  [[nodiscard]] double training_seconds() const {
    double sum = 0.0;
    std::int64_t before = 0;
    for (const Record& record : data_.records) {
      const double mean = record.value("time/step");
      if (std::isnan(mean)) continue;  // an evaluation
      sum += mean * static_cast<double>(record.step - before);
      before = record.step;
    }
    return sum;
  }

  [[nodiscard]] static std::string string_of(const Json& sample, const char* key) {
    if (!sample.contains(key)) return "";
    return sample[key].is_string() ? sample[key].get<std::string>() : sample[key].dump();
  }
  [[nodiscard]] static double number_of(const Json& object, const std::string& key) {
    return object.is_object() && object.contains(key) && object[key].is_number() ? object[key].get<double>() : no_value;
  }
  [[nodiscard]] static Json object_of(const Json& sample, const char* field) {
    return sample.contains(field) && sample[field].is_object() ? sample[field] : Json::object();
  }
  // Names of the columns in `field` of any of the samples, in the order they appear.
  [[nodiscard]] static std::vector<std::string> columns_of(const std::vector<const Json*>& group, const char* field) {
    std::vector<std::string> names;
    for (const Json* sample : group) {
      const Json columns = object_of(*sample, field);
      for (const auto& [name, value] : columns.items())
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  }
  // Cuts very long texts at a UTF-8 boundary.
  [[nodiscard]] static std::string shown(const std::string& value) {
    constexpr std::size_t limit = 6000;
    if (value.size() <= limit) return escape_html(value);
    std::size_t end = limit;
    while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xc0U) == 0x80U) --end;
    return escape_html(value.substr(0, end)) + " <em class=\"cut\">… " + std::to_string(value.size() - end) +
           " more bytes in samples.jsonl</em>";
  }

  // What an environment said stands out from what the model drew.
  [[nodiscard]] static std::string completion_of(const Json& sample) {
    if (!sample.contains("turns") || !sample["turns"].is_array()) return shown(string_of(sample, "completion"));
    std::string out;
    for (const Json& turn : sample["turns"]) {
      const bool said = turn.is_object() && turn.contains("environment");
      out += said ? "<span class=\"told\" title=\"environment\">" + shown(string_of(turn, "environment")) + "</span>"
                  : shown(turn.is_object() ? string_of(turn, "model") : turn.dump());
    }
    return out;
  }

  [[nodiscard]] static std::string rows(const std::vector<const Json*>& group) {
    const std::vector<std::string> names = columns_of(group, "rewards");
    std::vector<std::string> logged = columns_of(group, "logged");
    std::erase(logged, truth_column);  // stands above the samples that it is the truth of
    std::string head = "<tr><th>Completion</th>";
    for (const std::string& name : logged) head += "<th>" + escape_html(name) + "</th>";
    for (const std::string& name : names) head += "<th class=\"n\">" + escape_html(name) + "</th>";
    head += "<th class=\"n\">Advantage</th></tr>";
    std::string out;
    const std::string* prompt = nullptr;
    std::string current;
    for (const Json* sample : group) {
      const Json columns = object_of(*sample, "logged");
      const std::string this_prompt = string_of(*sample, "prompt");
      if (prompt == nullptr || current != this_prompt) {
        if (prompt != nullptr) out += "</table>";
        current = this_prompt;
        prompt = &current;
        out += "<div class=\"text prompt\">" + shown(current) + "</div>";
        if (columns.contains(truth_column))
          out += "<p class=\"sub\">Ground truth</p><div class=\"text prompt\">" +
                 shown(string_of(columns, truth_column)) + "</div>";
        out += "<table>" + head;
      }
      const Json rewards = object_of(*sample, "rewards");
      const bool cut = sample->contains("cut") && (*sample)["cut"] == true;
      out += "<tr><td><div class=\"text\">" + completion_of(*sample) +
             (cut ? " <em class=\"cut\">[cut at the limit]</em>" : "") + "</div></td>";
      for (const std::string& name : logged)
        out += "<td><div class=\"text\">" + shown(string_of(columns, name.c_str())) + "</div></td>";
      for (const std::string& name : names)
        out += "<td class=\"n\">" + short_number(number_of(rewards, name)) + "</td>";
      const double advantage = number_of(*sample, "advantage");
      char signed_text[32];
      std::snprintf(signed_text, sizeof signed_text, "%+.3f", advantage);
      out += std::string("<td class=\"n") +
             (advantage > 0   ? " up"
              : advantage < 0 ? " down"
                              : "") +
             "\">" + (std::isnan(advantage) ? "–" : signed_text) + "</td></tr>";
    }
    return out + (prompt != nullptr ? "</table>" : "");
  }

  [[nodiscard]] std::string samples() const {
    std::vector<std::pair<std::int64_t, std::vector<const Json*>>> steps;
    for (const Json& sample : data_.samples) {
      const auto step = sample["step"].get<std::int64_t>();
      if (steps.empty() || steps.back().first != step) steps.emplace_back(step, std::vector<const Json*>{});
      steps.back().second.push_back(&sample);
    }
    if (steps.empty()) return "";
    constexpr std::size_t limit = 40;
    const bool blocks = data_.points.contains("ebft/num_blocks");
    std::string out = blocks
                          ? "<h2>Sample blocks</h2>\n<p class=\"sub\">What stands before a block, what the text goes "
                            "on with, and what was drawn there.</p>\n"
                          : "<h2>Sample completions</h2>\n";
    const bool said = std::any_of(data_.samples.begin(), data_.samples.end(),
                                  [](const Json& sample) { return sample.contains("turns"); });
    if (said)
      out += "<p class=\"sub\">What an environment said has a <span class=\"told\">ground of its own</span>.</p>\n";
    const std::size_t shown_steps = std::min(limit, steps.size());
    if (shown_steps < steps.size())
      out += "<p class=\"sub\">" + std::to_string(shown_steps) + " of " + std::to_string(steps.size()) +
             " logged steps, evenly spaced; all are in samples.jsonl.</p>\n";
    for (std::size_t i = 0; i < shown_steps; ++i) {
      const auto& [step, group] = steps[shown_steps == 1 ? 0 : i * (steps.size() - 1) / (shown_steps - 1)];
      const bool open = i == 0 || i + 1 == shown_steps;
      double reward = no_value;
      for (const Record& record : data_.records)
        for (const char* name : {"reward", "ebft/mean_reward"})
          if (record.step == step && !std::isnan(record.value(name))) reward = record.value(name);
      out += std::string("<details") + (open ? " open" : "") + "><summary>Step " + std::to_string(step);
      if (!std::isnan(reward)) out += "<small>mean reward " + short_number(reward) + "</small>";
      out += "</summary><div>" + rows(group) + "</div></details>\n";
    }
    return out;
  }

  // The most and the least separated pairs of the last evaluation (or of the last record of a run without one).
  [[nodiscard]] std::string pairs() const {
    const Json& pairs = data_.pairs;
    if (!pairs.is_object() || !pairs.contains("most") || !pairs.contains("least")) return "";
    const std::string of = string_of(pairs, "split") == "evaluation" ? "held-out pairs" : "training pairs";
    std::string out = "<h2>Most and least separated pairs</h2>\n<p class=\"sub\">Of " + string_of(pairs, "pairs") +
                      " " + of + " at step " + string_of(pairs, "step") +
                      ", by margin: reward of the chosen answer less that of the rejected one.</p>\n";
    for (const auto& [key, title] : {std::pair("most", "Most separated"), std::pair("least", "Least separated")}) {
      out += std::string("<details open><summary>") + title +
             "</summary><div><table><tr><th>Prompt</th><th>Chosen</th><th>Rejected</th><th class=\"n\">Row</th>"
             "<th class=\"n\">Margin</th></tr>";
      for (const Json& pair : pairs[key]) {
        const double margin = number_of(pair, "margin");
        out += "<tr>";
        for (const char* text : {"prompt", "chosen", "rejected"})
          out += "<td><div class=\"text\">" + shown(string_of(pair, text)) + "</div></td>";
        out += "<td class=\"n\">" + string_of(pair, "row") + "</td><td class=\"n" + (margin < 0 ? " down" : " up") +
               "\">" + short_number(margin) + "</td></tr>";
      }
      out += "</table></div></details>\n";
    }
    return out;
  }

  [[nodiscard]] std::string settings() const {
    const auto all = settings_of(data_.run);
    if (all.empty()) return "";
    std::string out = "<h2>Settings</h2><details><summary>" + std::to_string(all.size()) +
                      " settings of this run</summary><div><dl class=\"settings\">";
    for (const auto& [key, value] : all)
      out += "<div><dt>" + escape_html(key) + "</dt><dd>" + escape_html(value) + "</dd></div>";
    return out + "</dl></div></details>\n";
  }

  static constexpr const char* truth_column = "ground_truth";  // of what is logged beside a sample
  ReportData data_;
  std::string stamp_;
};

}  // namespace detail

RLALGO_INLINE std::filesystem::path write_report(const std::filesystem::path& output_dir) {
  const std::filesystem::path path = output_dir / "report.html";
  os::write_file(path, detail::ReportPage(detail::read_report_data(output_dir)).html());
  return path;
}

RLALGO_INLINE std::string report_html(std::span<const std::filesystem::path> output_dirs, const std::string& stamp) {
  if (output_dirs.size() == 1) return detail::ReportPage(detail::read_report_data(output_dirs[0]), stamp).html();
  return detail::ComparisonPage(output_dirs, stamp).html();
}

RLALGO_INLINE std::string report_stamp(std::span<const std::filesystem::path> output_dirs) {
  std::string out;
  for (const std::filesystem::path& directory : output_dirs)
    for (const char* name : {metrics_file, samples_file, run_info_file, pairs_file}) {
      std::error_code none;
      const auto size = std::filesystem::file_size(directory / name, none);
      const auto time = std::filesystem::last_write_time(directory / name, none);
      out += none ? "-" : std::to_string(size) + "." + std::to_string(time.time_since_epoch().count());
      out += " ";
    }
  return out;
}

RLALGO_INLINE void ReportWriter::on_start(const RunStart& start) {
  output_dir_ = start.output_dir;
  write_report(output_dir_);
}

RLALGO_INLINE void ReportWriter::on_record(const Record&) {
  if (since_.seconds() < seconds_) return;
  write_report(output_dir_);
  since_ = {};
}

RLALGO_INLINE void ReportWriter::on_finish() {
  if (!output_dir_.empty()) write_report(output_dir_);
}

}  // namespace rlalgo::run
