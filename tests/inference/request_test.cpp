#include <support/catch.hpp>

#include <utility>

#include <rlalgo/inference/decoder_engine.hpp>
#include <rlalgo/inference/request.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;

TEST_CASE("a request of nothing but a prompt and a sampling is what generate() asks") {
  const model::DecoderConfig config = reference::tiny();
  const model::DecoderWeights weights = reference::random_weights(config, 1);
  inference::DecoderEngine engine(config);
  const auto view = engine.view(weights);
  const inference::SamplingConfig sampling{.top_p = 0.9, .max_new_tokens = 20};
  const std::vector<inference::Request> requests{{.prompt = {1, 2, 3}, .count = 3, .first_index = 5}};
  const auto expected = engine.generate(requests, sampling, {.seed = 4}, {}, view);
  inference::RequestResult found;
  inference::RequestSpec spec{
      .prompt = {1, 2, 3}, .count = 3, .sampling = sampling, .key = {.seed = 4}, .first_index = 5};
  spec.weights = view;
  spec.on_end = [&](inference::RequestId, inference::RequestResult&& result) { found = std::move(result); };
  engine.scheduler().submit(std::move(spec));
  engine.scheduler().drain();
  for (std::size_t j = 0; j < 3; ++j) {
    CHECK(found.completions[j].completion.ids == expected[0][j].ids);
    CHECK(found.completions[j].completion.log_probs == expected[0][j].log_probs);
    CHECK(found.completions[j].text.empty());
    CHECK(found.completions[j].top.empty());
  }
  CHECK(found.prompt_log_probs.empty());
}
