// expect: this surrogate does not read the importance ratio
#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/sequence_ratio.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/vespo.hpp>

using namespace rlalgo::loss;

#ifdef RLALGO_VALID
using Ratio = TokenRatio;
#else
using Ratio = SequenceRatio;
#endif

constexpr Needs needs = PolicyGradient<Vespo, Ratio, NoKl, GlobalTokenCount>::needs;
