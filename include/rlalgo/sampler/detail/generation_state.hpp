// A half-trained generation in a checkpoint: numbers as base64 of their little-endian bytes, so that they return bit
// for bit; prompts and texts are derived again from the dataset and the token ids.
//
// Errors: [rlalgo.sampler.7] the state belongs to another dataset or geometry, or is damaged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/sampler/batch.hpp>
#include <rlalgo/sampler/detail/score_generation.hpp>
#include <rlalgo/sampler/geometry.hpp>

namespace rlalgo::sampler::detail {

using Json = nlohmann::ordered_json;

[[noreturn]] void raise_state(const std::string& what, const std::string& found = {}, const std::string& expected = {});

// What must be the same for a resumed run to be the same run.
Json fingerprint(const Geometry& geometry, std::uint64_t seed, bool shuffle, std::size_t prompts);

void check_fingerprint(const Json& state, const Json& expected);

Json pack_generation(const Generation& generation, std::int64_t number);

std::shared_ptr<Generation> unpack_generation(const Json& packed, std::span<const data::TokenizedPrompt> prompts,
                                              const std::vector<std::size_t>& chosen, std::int64_t copies);

// A generation that has not been trained on yet, with what is to be logged of it.
Json pack_made(const Made& made);

// `chosen`: the prompts of the order's chunk `made.number`.
Made unpack_made(const Json& packed, std::span<const data::TokenizedPrompt> prompts,
                 const std::vector<std::size_t>& chosen, std::int64_t copies);

}  // namespace rlalgo::sampler::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/sampler/detail/generation_state_impl.hpp>
#endif
