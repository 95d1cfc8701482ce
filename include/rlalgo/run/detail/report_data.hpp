// What report.html is made of, read back from an output_dir: metrics.jsonl, samples.jsonl, pairs.json, run.json and the
// names of its checkpoints.
//
// A run may be in progress or may have been killed: a last line without its newline is left out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/bounded_json.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/os/regular_file.hpp>
#include <rlalgo/run/checkpoint.hpp>
#include <rlalgo/run/detail/report_chart.hpp>
#include <rlalgo/run/health.hpp>
#include <rlalgo/run/metrics_log.hpp>
#include <rlalgo/run/run_info.hpp>
#include <rlalgo/run/samples_log.hpp>

namespace rlalgo::run::detail {

struct ReportData {
  std::vector<Record> records;
  std::vector<std::string> names;                    // metrics in order of first appearance
  std::map<std::string, std::vector<Point>> points;  // finite values only
  std::vector<Json> samples;
  Json run = Json::object();  // run.json
  Json pairs = nullptr;       // pairs.json, or null
  std::vector<std::int64_t> checkpoints;
};

inline constexpr std::uint64_t largest_log = std::uint64_t{4} << 30U;  // bytes

// The objects of a JSONL file. Errors: [rlalgo.run.11] a line that is no object with a whole number "step".
[[nodiscard]] inline std::vector<Json> read_lines(const std::filesystem::path& path) {
  os::FileText file = os::read_regular_file(path, largest_log);
  const auto damaged = [&](const std::string& found, const std::string& where) {
    core::raise("run", 11,
                {.what = "a log of the run is damaged",
                 .found = found,
                 .expected = "a JSON object with \"step\"",
                 .where = where,
                 .remedy = "remove or mend the line"});
  };
  if (!file.problem.empty() && !file.absent) damaged(file.problem, path.string());
  const std::string& text = file.text;
  std::vector<Json> out;
  std::size_t number = 1;
  for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1, ++number) {
    Json line = core::read_json<Json>(std::string_view(text).substr(begin, end - begin)).value;
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer())
      damaged("a line that is no record", path.string() + ":" + std::to_string(number));
    out.push_back(std::move(line));
  }
  return out;
}

[[nodiscard]] inline ReportData read_report_data(const std::filesystem::path& output_dir) {
  // A run that has logged no step yet has its run.json.
  const bool logged = os::exists(output_dir / metrics_file);
  if (!logged && !os::exists(output_dir / run_info_file))
    core::raise("run", 10,
                {.what = "there is no run to report on",
                 .found = std::string("no ") + metrics_file,
                 .expected = "the output_dir of a run",
                 .where = output_dir.string(),
                 .remedy = "name the directory that `rlalgo train` wrote"});
  ReportData data;
  const std::vector<Json> lines = logged ? read_lines(output_dir / metrics_file) : std::vector<Json>();
  for (const Json& line : lines) {
    data.records.push_back(to_record(line));
    const Record& record = data.records.back();
    for (const auto& [name, value] : record.values) {
      const auto [it, first] = data.points.try_emplace(name);
      if (first) data.names.push_back(name);
      if (std::isfinite(value)) it->second.push_back({static_cast<double>(record.step), value});
    }
  }
  if (logged) data.samples = read_lines(output_dir / samples_file);
  data.run = read_run_info(output_dir);
  if (const os::FileText pairs = os::read_regular_file(output_dir / pairs_file, largest_log); !pairs.absent)
    data.pairs = core::read_json<Json>(pairs.text).value;
  for (const Checkpoint& checkpoint : list_checkpoints(output_dir)) data.checkpoints.push_back(checkpoint.step);
  return data;
}

inline void flatten(const std::string& prefix, const Json& value,
                    std::vector<std::pair<std::string, std::string>>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, entry] : value.items()) flatten(prefix.empty() ? key : prefix + "." + key, entry, out);
  } else {
    out.emplace_back(prefix, value.is_string() ? value.get<std::string>() : value.dump());
  }
}

// Of run.json: full key and value, by key.
[[nodiscard]] inline std::vector<std::pair<std::string, std::string>> settings_of(const Json& run) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const char* part : {"identity", "settings"})
    if (run.contains(part) && !run[part].empty()) flatten("", run[part], all);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

// Every metric in exactly one chart: the known ones grouped and in this order, then one chart for each other metric.
// Charts of a section stand together.
// The evaluation's value of a metric joins the chart of the metric. The least and the greatest value of what has a mean
// are the band behind its line.
[[nodiscard]] inline std::vector<Chart> arrange_charts(const ReportData& data) {
  struct Group {
    const char* title;
    std::vector<const char*> patterns;
    bool share = false;
    const char* section = "Curves";
  };
  static constexpr const char* matching = "Feature matching";
  static constexpr const char* asynchronous = "Asynchronous generation";
  static const std::vector<Group> groups = {
      {"Alignment with the ground truth, 2·cos", {"ebft/alignment"}, false, matching},
      {"Diversity: similarity among the samples", {"ebft/diversity"}, false, matching},
      {"Distance to the ground truth (CFM)", {"ebft/cfm_loss"}, false, matching},
      {"Cross-entropy of the ground truth, nats", {"ebft/ce_loss"}, false, matching},
      {"Reward of features", {"ebft/mean_reward", "ebft/reward"}, false, matching},
      {"Spread of the advantages", {"ebft/advantages_std"}, false, matching},
      {"Reward", {"reward"}},
      {"Reward by function, mean", {"rewards/*/mean"}},
      {"Rewards of chosen and rejected", {"rewards/chosen", "rewards/rejected", "rewards/margins"}},
      {"Reward accuracy", {"rewards/accuracies"}, true},
      {"Loss", {"loss", "policy_loss"}},
      {"KL to the reference, nats", {"kl"}},
      {"Entropy, nats", {"entropy"}},
      {"Clipped tokens, mean share", {"clip_ratio/*_mean", "cispo_clip_ratio", "clip_ratio"}, true},
      {"Clipped tokens, extremes", {"clip_ratio/*_min", "clip_ratio/*_max"}, true},
      {"Completion length, tokens", {"completions/mean_length", "completions/min_length", "completions/max_length"}},
      {"Length of completions that ended, tokens",
       {"completions/mean_terminated_length", "completions/*_terminated_length"}},
      {"Completions cut at the limit, share", {"completions/clipped_ratio"}, true},
      {"Reward spread", {"reward_std", "rewards/*/std"}},
      {"Prompts without signal, share", {"frac_reward_zero_std"}, true},
      {"Log-probs of chosen and rejected, nats", {"logps/*"}},
      {"Logits of chosen and rejected", {"logits/*"}},
      {"Sampler against trainer, log-prob difference",
       {"sampling/sampling_logp_difference/mean", "sampling/sampling_logp_difference/*"}},
      {"Sampler against trainer, ratio",
       {"sampling/importance_sampling_ratio/mean", "sampling/importance_sampling_ratio/*"}},
      {"Gradient norm", {"grad_norm"}},
      {"Learning rate", {"learning_rate"}},
      {"Tokens so far", {"num_tokens"}},
      {"Seconds per evaluation", {"time/eval"}},
      {"Seconds per step", {"step_time", "time/*"}},
      {"Staleness, updates", {"async/staleness/mean", "async/staleness/*"}, false, asynchronous},
      {"Generations ready when asked for", {"async/queue_depth"}, false, asynchronous},
      {"Seconds of waiting: trainer, generator", {"async/queue_wait_s", "async/producer_idle_s"}, false, asynchronous},
      {"Seconds per generation", {"async/*_s"}, false, asynchronous},
      {"Rows too old, made again", {"async/dropped"}, false, asynchronous},
      {"Replay, groups", {"replay_buffer_*"}, false, asynchronous},
      {"Failed prompts", {"reroll_*"}, false, asynchronous},
  };
  std::vector<Chart> charts;
  std::map<std::string, bool> used;
  const auto take = [&](Chart& chart, const std::string& name) {
    if (used[name]) return;
    used[name] = true;
    Series series{name, data.points.at(name)};
    const std::size_t mean = name.rfind("mean");
    const auto sibling = [&](const char* word) { return std::string(name).replace(mean, 4, word); };
    if (mean != std::string::npos && data.points.contains(sibling("min")) && data.points.contains(sibling("max"))) {
      const std::string low = sibling("min"), high = sibling("max");
      used[low] = used[high] = true;
      series.band = range_band(low, data.points.at(low), high, data.points.at(high));
    }
    chart.series.push_back(std::move(series));
  };
  const auto base = [](const std::string& name) { return name.starts_with("eval_") ? name.substr(5) : name; };
  const auto has = [&](const std::string& name) { return data.points.contains(name); };
  for (const Group& group : groups) {
    Chart chart{group.title, {}, group.share, group.section};
    for (const bool evaluation : {false, true})
      for (const char* pattern : group.patterns)
        for (const std::string& name : data.names)
          if (name.starts_with("eval_") == evaluation && matches(pattern, base(name))) take(chart, name);
    if (chart.series.empty()) continue;
    if (chart.series[0].name == "reward" && has("reward_std"))
      chart.series[0].band = deviation_band(chart.series[0].points, data.points.at("reward_std"));
    charts.push_back(std::move(chart));
  }
  for (const std::string& name : data.names) {
    if (used[name]) continue;
    Chart chart{name, {}};
    take(chart, name);
    if (has("eval_" + name)) take(chart, "eval_" + name);
    charts.push_back(std::move(chart));
  }
  std::stable_partition(charts.begin(), charts.end(), [](const Chart& c) { return c.section != asynchronous; });
  return charts;
}

}  // namespace rlalgo::run::detail
