#include <rlalgo/serve/metrics_text.hpp>

#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;

TEST_CASE("counts are text for Prometheus under vLLM's names") {
  serve::Engine::Counts counts;
  counts.scheduler.running = 2;
  counts.scheduler.waiting = 3;
  counts.pending = 4;
  counts.scheduler.pages_in_use = 5;
  counts.page_limit = 20;
  counts.scheduler.drawn_tokens = 7;
  counts.stopped = 8;
  counts.cut = 9;
  counts.aborted = 10;
  counts.failed = 11;
  counts.first_token_seconds = serve::Histogram({0.5, 1.0});
  counts.first_token_seconds.add(0.7);
  const std::string text = serve::metrics_text(counts, "a\"b\\c");
  const std::string label = "{model_name=\"a\\\"b\\\\c\"";
  CHECK(support::lacks(text,
                       {"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running" + label + "} 2\n",
                        "vllm:num_requests_waiting" + label + "} 7\n", "vllm:kv_cache_usage_perc" + label + "} 0.25\n",
                        "vllm:generation_tokens_total" + label + "} 7\n",
                        "vllm:request_success_total" + label + ",finished_reason=\"stop\"} 8\n",
                        "vllm:request_success_total" + label + ",finished_reason=\"length\"} 9\n",
                        "vllm:request_success_total" + label + ",finished_reason=\"abort\"} 10\n",
                        "vllm:request_success_total" + label + ",finished_reason=\"error\"} 11\n",
                        "vllm:time_to_first_token_seconds_bucket" + label + ",le=\"0.5\"} 0\n",
                        "vllm:time_to_first_token_seconds_bucket" + label + ",le=\"1\"} 1\n",
                        "vllm:time_to_first_token_seconds_bucket" + label + ",le=\"+Inf\"} 1\n",
                        "vllm:time_to_first_token_seconds_count" + label + "} 1\n"}) == "");
}
