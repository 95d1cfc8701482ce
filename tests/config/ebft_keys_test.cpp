#include <support/catch.hpp>

#include <rlalgo/config/ebft_keys.hpp>

TEST_CASE("defaults of feature matching are axolotl's") {
  const rlalgo::config::EbftConfig e;
  CHECK(e.mode == "structured");
  CHECK(e.feature_layers == std::vector<double>{0.25, 0.5, 0.75});
  CHECK(e.embed_method == "last_token");
  CHECK_FALSE(e.use_whitening);
  CHECK(e.alignment_coef == 1.0);
  CHECK(e.diversity_coef == 1.0);
  CHECK(e.ce_coef == 0.0);
  CHECK(e.rl_coef == 1.0);
  CHECK(e.adaptive_max_tokens);
  CHECK(e.gt_length_multiplier == 1.5);
  CHECK(e.stride == 8);
  CHECK(e.context_length == 8);
  CHECK(e.generate_max_len == 8);
  CHECK(e.n_samples_per_prompt == 4);
  CHECK(e.temperature == 0.6);
  CHECK(e.top_p == 1.0);
  CHECK(e.min_completion_prefix == 0);
  CHECK(e.advantage_estimator == "rloo");
  CHECK(e.feature_normalization == "joint");
  CHECK(e.whitening_space == "feature");
  CHECK_FALSE(e.save_rollouts);
}
