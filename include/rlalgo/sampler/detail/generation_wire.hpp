// What ranks send each other of a generation (sampler/shared.hpp): bytes that live as long as a message. A checkpoint has a form of its
// own (generation_state.hpp).
//
//   message   "RLGW" · format u32 = 1 · bytes of the part u64 · their XXH64 u64 · part
//   part      tokens i64 · lengths f64 [] · metrics [] · warnings: text [] · episodes []
//   metric    name: text · kind u8 · value f64 · weight f64
//   episode   dataset row i64 · rewards f64 [] · logged: value · interaction u8 (0: none) and what it says · rows []
//   row       own prompt u8, with 1 its ids i32 [] · ids i32 [] · log-probs of the generator, of the policy, of the reference f32 [] ·
//             mask u8 [] · experts u16 [] · finish u8 · version of the weights i64
//   []        number u64, and so many;   text: u8 []
//   value     JSON: kind u8, and what it has: i64, u64, f64, text, value [], (text · value) []
//
// Little-endian. Numbers keep their bits, texts their bytes, also where JSON has no way to write them (NaN, bytes that are no UTF-8).
// Prompts, columns and answers are those of the dataset, which every rank has; texts are decoded from the ids.
// Errors: [rlalgo.sampler.10] the bytes are not what another rank packed. Numbers of things are held against the bytes that
// are left before anything is made of them, JSON against levels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/sampler/detail/growing_generation.hpp>

namespace rlalgo::sampler::detail {

[[nodiscard]] std::string pack_part(const GenerationPart& part);

// What the reader knows of a part before it comes.
struct ExpectedPart {
  std::span<const data::TokenizedPrompt> prompts;  // the dataset
  std::span<const std::size_t> chosen;             // of each group its prompt there
  std::size_t copies = 0;                          // completions of each
  std::span<const WeightedReward> rewards = {};    // none: it has not been scored
  int rank = 0;                                    // who sends it
};
[[nodiscard]] GenerationPart unpack_part(std::string_view bytes, const ExpectedPart& expected);

}  // namespace rlalgo::sampler::detail

#ifndef RLALGO_COMPILED
#include <rlalgo/sampler/detail/generation_wire_impl.hpp>
#endif
