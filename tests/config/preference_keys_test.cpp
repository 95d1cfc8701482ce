#include <support/catch.hpp>

#include <rlalgo/config/preference_keys.hpp>

TEST_CASE("defaults are TRL's, and axolotl's for the data") {
  const rlalgo::config::PreferenceConfig p;
  CHECK(p.dpo_loss_type.empty());
  CHECK(p.f_divergence_type == "reverse_kl");
  CHECK(p.f_alpha_divergence_coef == 0.5);
  CHECK(p.discopop_tau == 0.05);
  CHECK(p.kto_desirable_weight == 1.0);
  CHECK(p.kto_undesirable_weight == 1.0);
  CHECK(p.cpo_alpha == 1.0);
  CHECK(p.simpo_gamma == 0.5);
  CHECK(p.sequence_len == 512);
  CHECK(p.excess_length_strategy == "drop");
  CHECK(p.ref_model_sync_steps == 512);
  CHECK(p.ref_model_mixup_alpha == 0.6);
  CHECK_FALSE(p.precompute_ref_log_probs);
}
