// expect: sampler::Prefetch: this generator reads the trainer's own tensors
#include <rlalgo/inference/local_engine.hpp>
#include <rlalgo/inference/snapshot_engine.hpp>
#include <rlalgo/sampler/concept.hpp>
#include <rlalgo/sampler/prefetch.hpp>
#include <rlalgo/sampler/rollouts.hpp>

using namespace rlalgo;

// The optimizer would write the weights while completions are drawn from them.
#ifdef RLALGO_VALID
using Generator = inference::SnapshotEngine;
#else
using Generator = inference::LocalEngine;
#endif

static_assert(sampler::Sampler<sampler::Prefetch<sampler::Rollouts<Generator>>>);
