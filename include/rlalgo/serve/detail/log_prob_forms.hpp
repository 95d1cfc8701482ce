// Log-probs as the protocols write them.
//
//   completion  {"tokens": [text], "token_logprobs": [x], "top_logprobs": [{text: x}], "text_offset": [characters]}
//   chat        {"content": [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}]}
//   prompt      [null, {"id": {"logprob", "rank", "decoded_token"}}, …]
//   ranked      [[x]], [[id]]: the most likely first, the drawn one among them
//
// Nats. What has no probability is written −9999, as vLLM does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/data/rollout.hpp>
#include <rlalgo/inference/request.hpp>
#include <rlalgo/text/tokenizer.hpp>

namespace rlalgo::serve::detail {

using data::Json;
using inference::TokenLogProb;

// Those beside position t; none where none were asked for.
inline std::span<const TokenLogProb> top_at(const std::vector<std::vector<TokenLogProb>>& top, std::size_t t) {
  return t < top.size() ? std::span<const TokenLogProb>(top[t]) : std::span<const TokenLogProb>();
}

inline double shown(float log_prob) { return std::max(static_cast<double>(log_prob), -9999.0); }

// The text of single tokens.
class TokenTexts {
 public:
  TokenTexts(const text::Tokenizer& tokenizer, bool as_ids) : tokenizer_(tokenizer), as_ids_(as_ids) {}

  [[nodiscard]] std::string operator()(data::TokenId id) const {
    return as_ids_ ? "token_id:" + std::to_string(id) : text(id);
  }
  // In the middle of a text: decoders that treat its beginning differently are asked for the second of two.
  [[nodiscard]] std::string text(data::TokenId id) const {
    const std::string alone = tokenizer_.decode(std::span(&id, 1), false);
    if (tokenizer_.streams_bytes()) return alone;
    const data::TokenId twice[] = {id, id};
    const std::string both = tokenizer_.decode(twice, false);
    return both.starts_with(alone) ? both.substr(alone.size()) : alone;
  }
  [[nodiscard]] Json bytes(data::TokenId id) const {
    const std::string bytes = tokenizer_.streams_bytes() ? std::string(tokenizer_.token_bytes(id, false)) : text(id);
    Json out = Json::array();
    for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
    return out;
  }

 private:
  const text::Tokenizer& tokenizer_;
  bool as_ids_;
};

inline std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

// The completion form, token by token.
class CompletionLogProbs {
 public:
  CompletionLogProbs(const TokenTexts& texts, std::int64_t alternatives, std::size_t offset = 0)
      : texts_(texts), alternatives_(static_cast<std::size_t>(alternatives)), offset_(offset) {}

  // `log_prob`: none for the first token of a prompt.
  void add(data::TokenId id, std::optional<float> log_prob, std::span<const TokenLogProb> top) {
    const std::string name = texts_(id);
    tokens_.push_back(name);
    offsets_.push_back(offset_);
    offset_ += characters(name);
    if (!log_prob) {
      values_.push_back(nullptr);
      tops_.push_back(nullptr);
      return;
    }
    values_.push_back(shown(*log_prob));
    Json entry = {{name, shown(*log_prob)}};
    for (const TokenLogProb& one : top.first(std::min(alternatives_, top.size())))
      if (one.id != id) entry[texts_(one.id)] = shown(one.log_prob);
    tops_.push_back(std::move(entry));
  }
  [[nodiscard]] Json take() {
    return {{"tokens", std::exchange(tokens_, Json::array())},
            {"token_logprobs", std::exchange(values_, Json::array())},
            {"top_logprobs", std::exchange(tops_, Json::array())},
            {"text_offset", std::exchange(offsets_, Json::array())}};
  }

 private:
  const TokenTexts& texts_;
  std::size_t alternatives_, offset_;
  Json tokens_ = Json::array(), values_ = Json::array(), tops_ = Json::array(), offsets_ = Json::array();
};

inline Json chat_log_prob(const TokenTexts& texts, data::TokenId id, float log_prob, std::int64_t alternatives,
                          std::span<const TokenLogProb> top) {
  Json tops = Json::array();
  for (const TokenLogProb& one : top.first(std::min(static_cast<std::size_t>(alternatives), top.size())))
    tops.push_back({{"token", texts(one.id)}, {"logprob", shown(one.log_prob)}, {"bytes", texts.bytes(one.id)}});
  return {{"token", texts(id)},
          {"logprob", shown(log_prob)},
          {"bytes", texts.bytes(id)},
          {"top_logprobs", std::move(tops)}};
}

// `alternatives`: so many of the most likely ids.
inline Json prompt_log_probs(const TokenTexts& texts, const inference::RequestResult& result,
                             std::int64_t alternatives) {
  Json out = Json::array({nullptr});
  for (std::size_t i = 0; i < result.prompt_log_probs.size(); ++i) {
    const auto entry = [&](data::TokenId id, float log_prob, std::int64_t rank) {
      return Json{{"logprob", shown(log_prob)}, {"rank", rank}, {"decoded_token", texts.text(id)}};
    };
    const TokenLogProb& own = result.prompt_log_probs[i];
    Json tokens = {{std::to_string(own.id), entry(own.id, own.log_prob, result.prompt_ranks[i])}};
    if (alternatives > 0) {
      const auto& top = result.prompt_top[i];
      for (std::size_t k = 0; k < top.size() && k < static_cast<std::size_t>(alternatives); ++k)
        if (top[k].id != own.id)
          tokens[std::to_string(top[k].id)] = entry(top[k].id, top[k].log_prob, static_cast<std::int64_t>(k) + 1);
    }
    out.push_back(std::move(tokens));
  }
  return out;
}

// Of one token: the most likely first.
inline void ranked_log_probs(data::TokenId id, float log_prob, std::span<const TokenLogProb> top, Json& values,
                             Json& ids) {
  Json value_list = Json::array(), id_list = Json::array();
  bool own = false;
  const auto add_own = [&] {
    value_list.push_back(shown(log_prob));
    id_list.push_back(id);
    own = true;
  };
  for (const TokenLogProb& one : top) {
    if (one.id == id) {
      add_own();
      continue;
    }
    if (!own && one.log_prob < log_prob) add_own();
    value_list.push_back(shown(one.log_prob));
    id_list.push_back(one.id);
  }
  if (!own) add_own();
  values.push_back(std::move(value_list));
  ids.push_back(std::move(id_list));
}

}  // namespace rlalgo::serve::detail
