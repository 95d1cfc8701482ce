// Definitions of metrics_text.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/serve/metrics_text.hpp>

namespace rlalgo::serve {

namespace detail {

class MetricsWriter {
 public:
  explicit MetricsWriter(const std::string& model) {
    label_ = "model_name=\"";
    for (const char c : model) {
      if (c == '\\' || c == '"') label_ += '\\';
      label_ += c == '\n' ? ' ' : c;
    }
    label_ += '"';
  }

  void head(const char* name, const char* type, const char* help) {
    out_ << "# HELP vllm:" << name << ' ' << help << "\n# TYPE vllm:" << name << ' ' << type << '\n';
  }
  template <class Value>
  void value(const char* name, Value value, const std::string& more = {}) {
    out_ << "vllm:" << name << '{' << label_ << more << "} " << value << '\n';
  }
  template <class Value>
  void one(const char* name, const char* type, const char* help, Value number) {
    head(name, type, help);
    value(name, number);
  }
  void histogram(const std::string& name, const char* help, const Histogram& values) {
    head(name.c_str(), "histogram", help);
    const auto bucket = name + "_bucket";
    for (std::size_t i = 0; i < values.bounds().size(); ++i) {
      std::ostringstream bound;
      bound << values.bounds()[i];
      value(bucket.c_str(), values.up_to(i), ",le=\"" + bound.str() + "\"");
    }
    value(bucket.c_str(), values.total(), ",le=\"+Inf\"");
    value((name + "_count").c_str(), values.total());
    value((name + "_sum").c_str(), values.sum());
  }
  [[nodiscard]] std::string text() const { return out_.str(); }

 private:
  std::string label_;
  std::ostringstream out_;
};

}  // namespace detail

RLALGO_INLINE std::string metrics_text(const Engine::Counts& counts, const std::string& model) {
  detail::MetricsWriter out(model);
  const auto& scheduler = counts.scheduler;
  out.one("num_requests_running", "gauge", "Completions that are being computed.", scheduler.running);
  out.one("num_requests_waiting", "gauge", "Requests that wait for a place.", scheduler.waiting + counts.pending);
  const double limit = static_cast<double>(std::max<std::size_t>(1, counts.page_limit));
  out.one("kv_cache_usage_perc", "gauge", "Share of the memory for keys and values in use, 0 to 1.",
          counts.page_limit == 0 ? 0.0 : static_cast<double>(scheduler.pages_in_use) / limit);
  out.one("prefix_cache_queries", "counter", "Prompt tokens looked up in the prefix cache.", scheduler.prompt_tokens);
  out.one("prefix_cache_hits", "counter", "Prompt tokens found there.", scheduler.cached_tokens);
  out.one("prompt_tokens_total", "counter", "Prompt tokens of requests.", scheduler.prompt_tokens);
  out.one("generation_tokens_total", "counter", "Tokens drawn.", scheduler.drawn_tokens);
  out.one("num_preemptions_total", "counter", "Completions that gave their memory back.", scheduler.preemptions);
  out.head("request_success_total", "counter", "Completions that have ended, by reason.");
  out.value("request_success_total", counts.stopped, ",finished_reason=\"stop\"");
  out.value("request_success_total", counts.cut, ",finished_reason=\"length\"");
  out.value("request_success_total", counts.aborted, ",finished_reason=\"abort\"");
  out.value("request_success_total", counts.failed, ",finished_reason=\"error\"");
  out.histogram("time_to_first_token_seconds", "From a request's arrival to its first token.",
                counts.first_token_seconds);
  out.histogram("inter_token_latency_seconds", "Between two tokens of a completion.", counts.inter_token_seconds);
  out.histogram("e2e_request_latency_seconds", "From a request's arrival to its end.", counts.request_seconds);
  out.histogram("request_queue_time_seconds", "From a request's arrival to the scheduler.", counts.queue_seconds);
  return out.text();
}

}  // namespace rlalgo::serve
