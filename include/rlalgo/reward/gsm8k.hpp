// Rewards for grade-school arithmetic with known answers: correctness, format, and how much of the format is there.
//
//   correctness_reward_func    2    the final answer equals the dataset's
//   int_reward_func            0.5  the final answer consists of digits
//   strict_format_reward_func  0.5  <reasoning>⏎one line⏎</reasoning>⏎<answer>⏎one line⏎</answer> and nothing else
//   soft_format_reward_func    0.25 starts with <reasoning>…</reasoning><answer>…</answer>, at most one blank between
//   xmlcount_reward_func       0.125 per tag of the four that occurs exactly once, minus 0.001 for every character but
//                                   one after the last </answer> when that occurs once
//   format_reward              1    an <answer>…</answer> block somewhere
//   gsm8k_accuracy             1    what follows the last "####" equals the dataset's answer
//   gsm8k_format               1    the last line is "#### <number>" and there is no other "####"
//
// Source: names and values of the GRPO examples of axolotl (the first five: axolotl-cookbook grpo/gsm8k.yaml, after a
// gist of W. Brown; format_reward: examples/grpo); the last two score GSM8K's own notation (Cobbe et al. 2021).
// The final answer of a completion is the text between the last <answer> tags, else what follows the last "####", else
// the whole text. The dataset's is column `answer`, after its last "####" if it has one. A row without it: NaN.
// Departures: axolotl compares strings; here "1,200", "$1200" and "1200.0" are the same number.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include <rlalgo/reward/function.hpp>

namespace rlalgo::reward {

namespace detail {

inline constexpr std::string_view blanks = " \t\n\r\f\v";

std::string_view trim(std::string_view text);

std::string_view after_last(std::string_view text, std::string_view mark);

std::size_t occurrences(std::string_view text, std::string_view part);

// Characters as Python's len() counts them: code points of UTF-8.
std::size_t characters(std::string_view text);

// "1,200", "$1200", "1200." and "-3.5" are numbers; anything else is not.
std::optional<double> number(std::string_view text);

bool same_answer(std::string_view a, std::string_view b);

// The text of column `answer`; nothing when the row has none.
std::optional<std::string> gold_answer(const Json& columns);

}  // namespace detail

// The text that a completion offers as its final answer.
[[nodiscard]] std::string_view final_answer(std::string_view text);

[[nodiscard]] double correctness(const std::string& text, const Json& columns);

[[nodiscard]] double integer_answer(const std::string& text);

[[nodiscard]] double strict_format(const std::string& text);

[[nodiscard]] double soft_format(const std::string& text);

[[nodiscard]] double xml_count(const std::string& text);

[[nodiscard]] double answer_block(const std::string& text);

[[nodiscard]] double hash_accuracy(const std::string& text, const Json& columns);

[[nodiscard]] double hash_format(const std::string& text);

}  // namespace rlalgo::reward

#ifndef RLALGO_COMPILED
#include <rlalgo/reward/detail/gsm8k_impl.hpp>
#endif
