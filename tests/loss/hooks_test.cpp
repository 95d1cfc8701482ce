#include <rlalgo/loss/hooks.hpp>

#include <rlalgo/loss/any_loss.hpp>
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/reinforce.hpp>
#include <rlalgo/loss/sampling_correction.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/vespo.hpp>

#include <support/catch.hpp>

using namespace rlalgo;

TEST_CASE("losses and their parts declare the optional members that they have") {
  using Corrected = loss::PolicyGradient<loss::ClippedRatio, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount,
                                         loss::SamplingCorrection>;
  STATIC_REQUIRE(loss::hooks_of<Corrected>().corrects_sampling);
  STATIC_REQUIRE(loss::hooks_of<Corrected>().token_share);
  STATIC_REQUIRE_FALSE(loss::hooks_of<Corrected>().active_needs);
  STATIC_REQUIRE(loss::hooks_of<loss::AnyLossLike<Corrected>>().active_needs);
  STATIC_REQUIRE(loss::hooks_of<loss::Reinforce>().ignores_ratio);
  STATIC_REQUIRE(loss::hooks_of<loss::Vespo>().takes_sampling_ratio);
  STATIC_REQUIRE_FALSE(loss::hooks_of<loss::ClippedRatio>().takes_sampling_ratio);
}
