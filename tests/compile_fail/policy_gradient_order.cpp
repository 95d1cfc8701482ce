// expect: the second part is not a RatioLevel
#include <rlalgo/loss/clipped_ratio.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_mean.hpp>
#include <rlalgo/loss/token_ratio.hpp>

using namespace rlalgo::loss;

#ifdef RLALGO_VALID
using Chosen = PolicyGradient<ClippedRatio, TokenRatio, NoKl, SequenceMean>;
#else
using Chosen = PolicyGradient<ClippedRatio, NoKl, TokenRatio, SequenceMean>;
#endif

constexpr Needs needs = Chosen::needs;
