// Several runs on one page.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/run/detail/report_chart.hpp>
#include <rlalgo/run/detail/report_data.hpp>
#include <rlalgo/run/detail/report_style.hpp>

namespace rlalgo::run::detail {

class ComparisonPage {
 public:
  ComparisonPage(std::span<const std::filesystem::path> directories, std::string stamp) : stamp_(std::move(stamp)) {
    for (const std::filesystem::path& directory : directories)
      runs_.push_back({name_of(directory), read_report_data(directory)});
    for (Run& run : runs_)
      if (std::count_if(runs_.begin(), runs_.end(), [&](const Run& other) { return other.name == run.name; }) > 1)
        run.longer = true;
    for (std::size_t i = 0; i < runs_.size(); ++i)
      if (runs_[i].longer) runs_[i].name = directories[i].string();
    for (const Run& run : runs_)
      for (const Chart& chart : arrange_charts(run.data))
        for (const Series& series : chart.series)
          if (std::find(metrics_.begin(), metrics_.end(), series.name) == metrics_.end())
            metrics_.push_back(series.name);
  }

  [[nodiscard]] std::string html() const {
    std::string title;
    for (const Run& run : runs_) title += (title.empty() ? "" : " · ") + run.name;
    return page_begin(escape_html(title), stamp_) + "<h1>" + escape_html(title) + "</h1>\n<p class=\"sub\">" +
           std::to_string(runs_.size()) + " runs</p>\n" + runs_table() + curves() + values_table() + differences() +
           page_end("metrics.jsonl and run.json of these directories", !stamp_.empty());
  }

 private:
  struct Run {
    std::string name;
    ReportData data;
    bool longer = false;  // another one has this name, too
  };

  [[nodiscard]] static std::string name_of(const std::filesystem::path& directory) {
    const std::filesystem::path plain = (directory / "").lexically_normal().parent_path();
    return plain.filename().empty() || plain.filename() == "." ? directory.string() : plain.filename().string();
  }

  [[nodiscard]] static std::string text_of(const Run& run, const char* key) {
    const Json& info = run.data.run;
    if (!info.contains(key)) return "–";
    return info[key].is_string() ? info[key].get<std::string>() : info[key].dump();
  }

  [[nodiscard]] std::string head(const char* first) const {
    std::string out = "<table><tr><th>" + std::string(first) + "</th>";
    for (const Run& run : runs_) out += "<th class=\"n\">" + escape_html(run.name) + "</th>";
    return out + "</tr>";
  }

  [[nodiscard]] std::string runs_table() const {
    std::string out = head("Run");
    for (const auto& [key, label] : {std::pair("title", "What"), std::pair("status", "Status"),
                                     std::pair("started", "Started"), std::pair("max_steps", "Steps in all")}) {
      out += "<tr><td>" + std::string(label) + "</td>";
      for (const Run& run : runs_) out += "<td class=\"n\">" + escape_html(text_of(run, key)) + "</td>";
      out += "</tr>";
    }
    return out + "</table>\n";
  }

  [[nodiscard]] std::string curves() const {
    std::string out = "<h2>Curves</h2><div class=\"charts\">\n";
    for (const std::string& metric : metrics_) {
      Chart chart{metric, {}};
      for (const Run& run : runs_) {
        const auto at = run.data.points.find(metric);
        chart.series.push_back({run.name, at == run.data.points.end() ? std::vector<Point>() : at->second});
      }
      out += ChartDrawing(chart).html();
    }
    return out + "</div>\n";
  }

  // Of what has a good side: the best value, too.
  [[nodiscard]] std::string values_table() const {
    static const std::map<std::string, bool> greater_is_better = {
        {"reward", true}, {"eval_reward", true}, {"rewards/accuracies", true}, {"eval_rewards/accuracies", true},
        {"loss", false},  {"eval_loss", false},  {"ebft/alignment", true},     {"ebft/cfm_loss", false}};
    std::string out = "<h2>Last values</h2>" + head("Metric");
    for (const std::string& metric : metrics_) {
      const auto better = greater_is_better.find(metric);
      out += "<tr><td>" + escape_html(metric) + "</td>";
      for (const Run& run : runs_) {
        const auto at = run.data.points.find(metric);
        const bool none = at == run.data.points.end() || at->second.empty();
        out += "<td class=\"n\">" + (none ? "–" : short_number(at->second.back().value));
        if (!none && better != greater_is_better.end()) out += best_of(at->second, better->second);
        out += "</td>";
      }
      out += "</tr>";
    }
    return out + "</table>\n";
  }

  [[nodiscard]] static std::string best_of(const std::vector<Point>& points, bool greater) {
    const auto less = [](const Point& a, const Point& b) { return a.value < b.value; };
    const Point& best = *(greater ? std::max_element(points.begin(), points.end(), less)
                                  : std::min_element(points.begin(), points.end(), less));
    return " <small class=\"sub\">best " + short_number(best.value) + " at step " + short_number(best.step) +
           "</small>";
  }

  [[nodiscard]] std::string differences() const {
    std::map<std::string, std::vector<std::string>> values;
    for (std::size_t i = 0; i < runs_.size(); ++i)
      for (const auto& [key, value] : settings_of(runs_[i].data.run)) {
        values[key].resize(runs_.size(), "–");
        values[key][i] = value;
      }
    std::string rows;
    for (const auto& [key, each] : values) {
      if (std::all_of(each.begin(), each.end(), [&](const std::string& v) { return v == each.front(); })) continue;
      rows += "<tr><td>" + escape_html(key) + "</td>";
      for (const std::string& value : each) rows += "<td class=\"n\">" + escape_html(value) + "</td>";
      rows += "</tr>";
    }
    if (rows.empty()) return "<h2>Settings</h2><p class=\"sub\">All settings are the same.</p>\n";
    return "<h2>Settings that differ</h2>" + head("Setting") + rows + "</table>\n";
  }

  std::vector<Run> runs_;
  std::vector<std::string> metrics_;  // in the order of a report's charts
  std::string stamp_;
};

}  // namespace rlalgo::run::detail
