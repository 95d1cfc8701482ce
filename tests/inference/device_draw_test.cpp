// Draws where the logits are: by the kernel of cuda/draw.cuh, on the host here (support/host_kernels.cpp). Given equal logits they are the
// engine's, whatever a request asks, and what the kernel does not answer is left to the host.
#include <rlalgo/inference/detail/device_draws.hpp>

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <rlalgo/inference/scheduler.hpp>

#include <support/catch.hpp>

#include "inference/toy_forward.hpp"

using namespace rlalgo;
using data::TokenId;

namespace {

// The toy model, whose logits a device draws from.
class DrawingForward final : public toy::ToyForward {
 public:
  using ToyForward::ToyForward;
  void draw(const Weights& weights, std::span<const std::int64_t> rows,
            std::span<inference::detail::Draw> draws) override {
    const float* const all = logits(weights, rows);
    const std::int64_t vocabulary = toy::config().vocab_size;
    const std::vector<float> values(all, all + static_cast<std::int64_t>(rows.size()) * vocabulary);
    draws_.answer(
        *cuda::compiled(), vocabulary,
        [&] {
          return tensor::from_values(values, at::kFloat).view({-1, vocabulary});
        },
        draws);
    for (const inference::detail::Draw& draw : draws) (draw.known ? known : unknown) += 1;
  }
  std::int64_t known = 0, unknown = 0;

 private:
  inference::detail::DeviceDraws draws_;
};

template <class Forward>
struct Bench {
  model::DecoderConfig decoder = toy::config();
  inference::KvCache cache{1, 1, 8};
  os::ThreadPool pool{1};
  Forward forward{cache, 64, 8};
  inference::Scheduler scheduler{decoder, forward, cache, pool, {.max_slots = 8, .prefill_rows = 56, .eos_ids = {3}}};
  std::map<inference::RequestId, inference::RequestResult> ended;

  void submit(inference::RequestSpec spec) {
    spec.on_end = [this](inference::RequestId id, inference::RequestResult&& result) { ended[id] = std::move(result); };
    scheduler.submit(std::move(spec));
  }
};

bool near(float a, float b) { return std::abs(a - b) < 4e-6F * (1.0F + std::abs(b)); }
bool near(const std::vector<inference::TokenLogProb>& a, const std::vector<inference::TokenLogProb>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].id != b[i].id || !near(a[i].log_prob, b[i].log_prob)) return false;
  return true;
}

std::vector<inference::RequestSpec> requests() {
  std::mt19937 random(5);
  const auto one_of = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> all{values...};
    return all[random() % all.size()];
  };
  std::vector<inference::RequestSpec> out;
  for (std::uint64_t i = 0; i < 60; ++i) {
    inference::RequestSpec spec;
    for (std::uint64_t k = 0; k < 3 + i % 5; ++k) spec.prompt.push_back(static_cast<TokenId>(random() % 50));
    spec.count = one_of(1, 1, 3);
    spec.sampling = {.temperature = one_of(0.0, 0.7, 1.0, 1.6, 1e-300),
                     .top_p = one_of(1.0, 1.0, 0.9, 0.3),
                     .top_k = one_of(0, 0, 1, 5, 49, 200),
                     .min_p = one_of(0.0, 0.0, 0.05),
                     .repetition_penalty = one_of(1.0, 1.0, 1.3, 0.8),
                     .max_new_tokens = 6};
    spec.key = {.seed = i, .step = i % 3};
    spec.first_index = 10 * i;
    spec.first_position = static_cast<std::uint32_t>(i % 4);
    spec.min_new_tokens = one_of(0, 0, 3);
    spec.top_log_probs = one_of(0, 0, 1, 4);
    spec.log_probs = one_of(inference::LogProbKind::drawn_from, inference::LogProbKind::model);
    if (i % 7 == 0) spec.prompt_log_probs = one_of(0, 3);
    if (i % 11 == 0) spec.given = {4, 9, 2}, spec.count = 1;
    if (i % 13 == 0) spec.edit_logits = [](std::span<float> logits, std::span<const TokenId>) { logits[7] += 2.0F; };
    spec.weights = toy::weights(1);
    out.push_back(std::move(spec));
  }
  return out;
}

}  // namespace

TEST_CASE("whatever a request asks, a device draws the engine's tokens, and leaves to the host what it does not know") {
  REQUIRE(cuda::compiled() != nullptr);
  Bench<toy::ToyForward> host;
  Bench<DrawingForward> device;
  for (const inference::RequestSpec& spec : requests()) host.submit(spec), device.submit(spec);
  host.scheduler.drain();
  device.scheduler.drain();
  REQUIRE(host.ended.size() == 60);
  REQUIRE(device.ended.size() == 60);
  for (const auto& [id, expected] : host.ended) {
    CAPTURE(id);
    const inference::RequestResult& found = device.ended.at(id);
    REQUIRE(found.completions.size() == expected.completions.size());
    for (std::size_t j = 0; j < expected.completions.size(); ++j) {
      const auto &a = found.completions[j], &b = expected.completions[j];
      CHECK(a.completion.ids == b.completion.ids);
      CHECK(a.completion.finish == b.completion.finish);
      REQUIRE(a.completion.log_probs.size() == b.completion.log_probs.size());
      for (std::size_t t = 0; t < b.completion.log_probs.size(); ++t)
        CHECK(near(a.completion.log_probs[t], b.completion.log_probs[t]));
      REQUIRE(a.top.size() == b.top.size());
      for (std::size_t t = 0; t < b.top.size(); ++t) CHECK(near(a.top[t], b.top[t]));
    }
    CHECK(near(found.prompt_log_probs, expected.prompt_log_probs));
    CHECK(found.prompt_ranks == expected.prompt_ranks);
    REQUIRE(found.prompt_top.size() == expected.prompt_top.size());
    for (std::size_t t = 0; t < expected.prompt_top.size(); ++t)
      CHECK(near(found.prompt_top[t], expected.prompt_top[t]));
  }
  CHECK(device.forward.known > 500);
  CHECK(device.forward.unknown > 10);  // of requests that edit logits
  CHECK(device.forward.unknown < 150);
}

TEST_CASE("logits that are not finite are refused by the host") {
  inference::detail::DeviceDraws draws;
  inference::detail::Scheduled request;
  request.spec.prompt = {1, 2};
  request.result.completions.resize(1);
  std::vector<inference::detail::Draw> asked(2);
  for (std::size_t i = 0; i < 2; ++i) asked[i] = {.request = &request, .row = static_cast<std::int64_t>(i)};
  const std::vector<float> values{0.0F, NAN, 1.0F, 0.0F, -50.0F, -60.0F};
  draws.answer(
      *cuda::compiled(), 3,
      [&] {
        return tensor::from_values(values, at::kFloat).view({2, 3});
      },
      asked);
  CHECK_FALSE(asked[0].known);
  CHECK(asked[1].known);
  CHECK(asked[1].drawn.id == 0);
}
