// One chart of report.html as inline SVG: several series over optimizer steps, axes with round numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlalgo::run::detail {

struct Point {
  double step = 0.0;
  double value = 0.0;
};

// Drawn behind the line of a series: from the least to the greatest value, or a standard deviation to both sides.
struct Band {
  enum class Kind { none, range, deviation };
  Kind kind = Kind::none;
  std::string low_name, high_name;  // the metrics of a range
  std::vector<Point> low, high;     // of the same steps
};

struct Series {
  std::string name;
  std::vector<Point> points;  // finite values, by step
  Band band = {};
};

struct Chart {
  std::string title;
  std::vector<Series> series;
  bool share = false;  // values are within 0 and 1, and so is the axis
  std::string section = "Curves";
};

// The band between two metrics, where both have a value at a step.
[[nodiscard]] inline Band range_band(const std::string& low_name, const std::vector<Point>& low,
                                     const std::string& high_name, const std::vector<Point>& high) {
  Band band{Band::Kind::range, low_name, high_name, {}, {}};
  std::size_t j = 0;
  for (const Point& p : low) {
    while (j < high.size() && high[j].step < p.step) ++j;
    if (j < high.size() && high[j].step == p.step) band.low.push_back(p), band.high.push_back(high[j]);
  }
  return band;
}

// The band of a standard deviation around the values of the same steps.
[[nodiscard]] inline Band deviation_band(const std::vector<Point>& points, const std::vector<Point>& deviations) {
  Band band{Band::Kind::deviation, "", "", {}, {}};
  std::size_t j = 0;
  for (const Point& p : points) {
    while (j < deviations.size() && deviations[j].step < p.step) ++j;
    if (j == deviations.size() || deviations[j].step != p.step) continue;
    band.low.push_back({p.step, p.value - deviations[j].value});
    band.high.push_back({p.step, p.value + deviations[j].value});
  }
  return band;
}

// Text inside an element or a quoted attribute. Control characters other than newline and tab become visible marks.
[[nodiscard]] inline std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
          out += "\xEF\xBF\xBD";
        else
          out += c;
    }
  }
  return out;
}

// At most four significant digits: 0.5313, 12.4k, 1.2e-05.
[[nodiscard]] inline std::string short_number(double value) {
  if (!std::isfinite(value)) return "–";
  char text[32];
  const double size = std::abs(value);
  if (size >= 1e6 && size < 1e9)
    std::snprintf(text, sizeof text, "%.4gM", value / 1e6);
  else if (size >= 1e4 && size < 1e6)
    std::snprintf(text, sizeof text, "%.4gk", value / 1e3);
  else
    std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

// Round numbers inside [low, high], about `wanted` of them.
[[nodiscard]] inline std::vector<double> ticks(double low, double high, int wanted, bool whole) {
  const double rough = (high - low) / wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {1.0, 2.0, 5.0, 10.0})
    if (factor * power >= rough * 0.999) {
      step = factor * power;
      break;
    }
  if (whole) step = std::max(1.0, std::round(step));
  std::vector<double> out;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && out.size() < 20; ++i)
    out.push_back(i * step == 0 ? 0.0 : i * step);
  // One number alone says nothing of the scale.
  if (out.size() < 2 && !whole && wanted < 64) return ticks(low, high, 2 * wanted, whole);
  return out;
}

// At most `limit` points: means over equal runs of points.
[[nodiscard]] inline std::vector<Point> thinned(const std::vector<Point>& points, std::size_t limit) {
  if (points.size() <= limit) return points;
  std::vector<Point> out;
  for (std::size_t i = 0; i < limit; ++i) {
    const std::size_t begin = i * points.size() / limit;
    const std::size_t end = (i + 1) * points.size() / limit;
    double sum = 0.0;
    for (std::size_t j = begin; j < end; ++j) sum += points[j].value;
    out.push_back({points[end - 1].step, sum / static_cast<double>(end - begin)});
  }
  return out;
}

// Exponential average over both sides of each point, so that it lags behind neither: the weighted mean of a forward and
// a backward average, each with the weight it has gathered since its start.
[[nodiscard]] inline std::vector<Point> smoothed(const std::vector<Point>& points, double keep) {
  std::vector<double> sums(points.size(), 0.0);
  std::vector<double> weights(points.size(), 0.0);
  const auto pass = [&](std::size_t first, std::size_t count, std::ptrdiff_t direction) {
    double sum = 0.0;
    double weight = 0.0;
    for (std::size_t n = 0, i = first; n < count; ++n, i += static_cast<std::size_t>(direction)) {
      sum = keep * sum + (1 - keep) * points[i].value;
      weight = keep * weight + (1 - keep);
      sums[i] += sum;
      weights[i] += weight;
    }
  };
  pass(0, points.size(), 1);
  pass(points.size() - 1, points.size(), -1);
  std::vector<Point> out;
  for (std::size_t i = 0; i < points.size(); ++i) out.push_back({points[i].step, sums[i] / weights[i]});
  return out;
}

// A curve that goes up and down many times its range; a schedule or a running total is not.
[[nodiscard]] inline bool is_noisy(const std::vector<Point>& points) {
  if (points.size() < 40) return false;
  double travelled = 0.0;
  double low = points[0].value;
  double high = low;
  for (std::size_t i = 1; i < points.size(); ++i) {
    travelled += std::abs(points[i].value - points[i - 1].value);
    low = std::min(low, points[i].value);
    high = std::max(high, points[i].value);
  }
  return travelled > 3 * (high - low);
}

class ChartDrawing {
 public:
  explicit ChartDrawing(const Chart& chart) : chart_(chart) {
    for (Series& s : chart_.series)
      for (std::vector<Point>* points : {&s.points, &s.band.low, &s.band.high}) {
        *points = thinned(*points, 300);
        for (const Point& p : *points) include(p);
      }
    if (low_ > high_) low_ = 0, high_ = 1, first_ = 0, last_ = 1;
    if (last_ == first_) first_ -= 1, last_ += 1;
    choose_axis();
  }

  [[nodiscard]] std::string html() const {
    std::string out = "<section class=\"card\"><span class=\"read\">" + reading() + "</span><h3>" +
                      escape_html(chart_.title) + "</h3>";
    out += svg();
    const bool named = chart_.series.size() > 1 || chart_.series[0].band.kind == Band::Kind::range;
    if (named) {
      out += "<div class=\"legend\">";
      for (std::size_t i = 0; i < chart_.series.size(); ++i)
        out += "<span><i class=\"f" + color(i) + "\"></i>" + escape_html(label(chart_.series[i])) + " <b>" +
               newest(chart_.series[i]) + "</b></span>";
      out += "</div>";
    }
    return out + "<div class=\"tip\"></div></section>\n";
  }

 private:
  static constexpr double width_ = 360, height_ = 180, left_ = 46, right_ = 8, top_ = 8, bottom_ = 20;
  static std::string color(std::size_t i) { return std::to_string(i % 8); }
  static std::string label(const Series& s) {
    return s.name + (s.band.kind == Band::Kind::range ? ", least to greatest" : "");
  }
  // The value of a point with its band: "0.53", "0.53 ± 0.1", "34.2 (10 to 60)".
  static std::string value(const Series& s, std::size_t i) {
    std::string text = short_number(s.points[i].value);
    const auto& [kind, low_name, high_name, low, high] = s.band;
    const auto at = std::lower_bound(low.begin(), low.end(), s.points[i].step,
                                     [](const Point& p, double step) { return p.step < step; });
    if (at == low.end() || at->step != s.points[i].step) return text;
    const Point& top = high[static_cast<std::size_t>(at - low.begin())];
    if (kind == Band::Kind::deviation) return text + " ± " + short_number((top.value - at->value) / 2);
    return text + " (" + short_number(at->value) + " to " + short_number(top.value) + ")";
  }
  static std::string newest(const Series& s) { return s.points.empty() ? "–" : value(s, s.points.size() - 1); }

  // A little room around the values. A positive quantity keeps a positive axis, a share one within 0 and 1; a flat line
  // of 0, or of any share, has the axis from 0 to 1.
  void choose_axis() {
    const bool flat = high_ - low_ < 1e-12 * std::max(1.0, std::abs(high_));
    const bool share = chart_.share && low_ >= 0 && high_ <= 1;
    if (flat && (share || high_ == 0)) {
      low_ = 0, high_ = 1;
      return;
    }
    if (flat) {
      const double around = std::abs(high_) * 0.1;
      low_ -= around, high_ += around;
    }
    const double pad = (high_ - low_) * 0.06;
    if (low_ < 0 || low_ - pad >= 0)
      low_ -= pad;
    else
      low_ = 0;
    high_ = share ? std::min(1.0, high_ + pad) : high_ + pad;
  }
  [[nodiscard]] std::string reading() const { return chart_.series.size() == 1 ? newest(chart_.series[0]) : ""; }

  void include(const Point& p) {
    first_ = std::min(first_, p.step), last_ = std::max(last_, p.step);
    low_ = std::min(low_, p.value), high_ = std::max(high_, p.value);
  }
  [[nodiscard]] double x(double step) const {
    return left_ + (step - first_) / (last_ - first_) * (width_ - left_ - right_);
  }
  [[nodiscard]] double y(double value) const {
    return height_ - bottom_ - (value - low_) / (high_ - low_) * (height_ - top_ - bottom_);
  }
  static std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value);
    return text;
  }

  [[nodiscard]] std::string path(const std::vector<Point>& points) const {
    std::string out;
    for (const Point& p : points) out += (out.empty() ? "M" : "L") + number(x(p.step)) + " " + number(y(p.value));
    return out;
  }

  [[nodiscard]] std::string axes() const {
    std::string out;
    for (const double v : ticks(low_, high_, 4, false)) {
      const std::string at = number(y(v));
      out += "<line class=\"grid\" x1=\"" + number(left_) + "\" x2=\"" + number(width_ - right_) + "\" y1=\"" + at +
             "\" y2=\"" + at + "\"/>";
      out += "<text text-anchor=\"end\" x=\"" + number(left_ - 5) + "\" y=\"" + number(y(v) + 3.5) + "\">" +
             short_number(v) + "</text>";
    }
    for (const double s : ticks(first_, last_, 5, true))
      out += "<text text-anchor=\"middle\" x=\"" + number(x(s)) + "\" y=\"" + number(height_ - 5) + "\">" +
             short_number(s) + "</text>";
    const std::string floor = number(height_ - bottom_);
    return out + "<line class=\"axis\" x1=\"" + number(left_) + "\" x2=\"" + number(width_ - right_) + "\" y1=\"" +
           floor + "\" y2=\"" + floor + "\"/>";
  }

  [[nodiscard]] std::string draw(const Series& series, std::size_t index) const {
    const bool evaluation = series.name.starts_with("eval_");
    const std::string c = color(index);
    std::string out;
    const bool noisy = !evaluation && is_noisy(series.points);
    if (noisy) out += "<path class=\"raw c" + c + "\" d=\"" + path(series.points) + "\"/>";
    std::string xs, ys, steps, values;
    for (std::size_t i = 0; i < series.points.size(); ++i) {
      const Point& p = series.points[i];
      const char* gap = i == 0 ? "" : " ";
      char step[32];
      std::snprintf(step, sizeof step, "%.0f", p.step);
      xs += gap + number(x(p.step)), ys += gap + number(y(p.value)), steps += std::string(gap) + step;
      values += (i == 0 ? "" : "|") + value(series, i);
    }
    out += "<path class=\"c" + c + (evaluation ? " eval" : "") + "\" d=\"" +
           path(noisy ? smoothed(series.points, 0.8) : series.points) + "\"";
    if (!series.points.empty())
      out += " data-n=\"" + escape_html(series.name) + "\" data-c=\"" + c + "\" data-x=\"" + xs + "\" data-y=\"" + ys +
             "\" data-s=\"" + steps + "\" data-v=\"" + values + "\"";
    out += "/>";
    if (series.points.size() <= 12 || (evaluation && series.points.size() <= 40))
      for (const Point& p : series.points)
        out += "<circle class=\"f" + c + "\" r=\"2.4\" cx=\"" + number(x(p.step)) + "\" cy=\"" + number(y(p.value)) +
               "\"/>";
    return out;
  }

  [[nodiscard]] std::string svg() const {
    std::string out = "<svg viewBox=\"0 0 " + number(width_) + " " + number(height_) + "\" role=\"img\" aria-label=\"" +
                      escape_html(chart_.title) + " over steps\">" + axes();
    for (std::size_t i = 0; i < chart_.series.size(); ++i) {
      const Band& band = chart_.series[i].band;
      if (band.low.size() < 2) continue;
      std::vector<Point> edge = band.high;
      edge.insert(edge.end(), band.low.rbegin(), band.low.rend());
      out += "<path class=\"band f" + color(i) + "\" d=\"" + path(edge) + "Z\"/>";
    }
    for (std::size_t i = 0; i < chart_.series.size(); ++i) out += draw(chart_.series[i], i);
    return out + "<line class=\"guide\" y1=\"" + number(top_) + "\" y2=\"" + number(height_ - bottom_) +
           "\"/><circle class=\"dot\" r=\"4\"/></svg>";
  }

  Chart chart_;
  double first_ = std::numeric_limits<double>::infinity(), last_ = -std::numeric_limits<double>::infinity();
  double low_ = std::numeric_limits<double>::infinity(), high_ = -std::numeric_limits<double>::infinity();
};

}  // namespace rlalgo::run::detail
