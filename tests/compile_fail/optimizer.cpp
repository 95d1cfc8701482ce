// expect: this is not an Optimizer
#include <rlalgo/advantage/none.hpp>
#include <rlalgo/aggregation/none.hpp>
#include <rlalgo/loss/direct_preference.hpp>
#include <rlalgo/loss/logistic_objectives.hpp>
#include <rlalgo/sampler/preferences.hpp>
#include <rlalgo/sync/no_sync.hpp>
#include <rlalgo/trainer/trainer.hpp>

using namespace rlalgo;

struct Forgetful : optim::AdamW {
  using AdamW::AdamW;
#ifndef RLALGO_VALID
  void state() const {}
#endif
};

using Dpo = loss::DirectPreference<loss::Sigmoid>;
using Trainer = trainer::Trainer<Dpo, advantage::None, sampler::Pairs, aggregation::None, sync::NoSync, Forgetful>;
static_assert(sizeof(Trainer) > 0);
