// Definitions of generation_wire.hpp.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/digest.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/core/reward_table.hpp>
#include <rlalgo/data/rollout.hpp>
#include <rlalgo/sampler/detail/generation_wire.hpp>

namespace rlalgo::sampler::detail {

static_assert(std::endian::native == std::endian::little, "messages are little-endian");

inline constexpr std::string_view wire_magic = "RLGW";
inline constexpr std::uint32_t wire_format = 1;
inline constexpr std::size_t wire_head = 4 + 4 + 8 + 8;
inline constexpr int wire_levels = 200;  // of JSON

enum class WireValue : std::uint8_t { null, no, yes, integer, natural, real, text, list, object };

class PartWriter {
 public:
  template <class T>
  requires std::integral<T> || std::floating_point<T>
  void number(T value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  template <class T>
  void list(const std::vector<T>& values) {
    number(static_cast<std::uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void text(std::string_view text) {
    number(static_cast<std::uint64_t>(text.size()));
    bytes_.append(text);
  }
  void value(const data::Json& json) {
    using Kind = data::Json::value_t;
    switch (json.type()) {
      case Kind::boolean:
        return kind(json.get<bool>() ? WireValue::yes : WireValue::no);
      case Kind::number_integer:
        kind(WireValue::integer);
        return number(json.get<std::int64_t>());
      case Kind::number_unsigned:
        kind(WireValue::natural);
        return number(json.get<std::uint64_t>());
      case Kind::number_float:
        kind(WireValue::real);
        return number(json.get<double>());
      case Kind::string:
        kind(WireValue::text);
        return text(json.get_ref<const std::string&>());
      case Kind::array:
        kind(WireValue::list);
        number(static_cast<std::uint64_t>(json.size()));
        for (const data::Json& one : json) value(one);
        return;
      case Kind::object:
        kind(WireValue::object);
        number(static_cast<std::uint64_t>(json.size()));
        for (const auto& [name, one] : json.items()) {
          text(name);
          value(one);
        }
        return;
      default:  // null; there is no other of a JSON text
        return kind(WireValue::null);
    }
  }
  [[nodiscard]] std::string message() && {
    const std::string_view part = std::string_view(bytes_).substr(wire_head);
    const std::uint64_t size = part.size(), digest = core::Digest().update(part).value();
    char* at = bytes_.data();
    const auto put = [&at](const void* from, std::size_t count) {
      std::memcpy(at, from, count);
      at += count;
    };
    put(wire_magic.data(), wire_magic.size());
    put(&wire_format, sizeof wire_format);
    put(&size, sizeof size);
    put(&digest, sizeof digest);
    return std::move(bytes_);
  }

 private:
  void kind(WireValue kind) { number(static_cast<std::uint8_t>(kind)); }
  std::string bytes_ = std::string(wire_head, '\0');  // the head, then the part
};

class PartReader {
 public:
  PartReader(std::string_view message, int rank) : message_(message), at_(0), rank_(rank) {
    if (message.size() < wire_head || message.substr(0, wire_magic.size()) != wire_magic)
      refuse("no message of a part", "one that begins with " + std::string(wire_magic));
    at_ = wire_magic.size();
    if (const auto format = number<std::uint32_t>(); format != wire_format)
      refuse("format " + std::to_string(format), "format " + std::to_string(wire_format));
    const auto size = number<std::uint64_t>(), digest = number<std::uint64_t>();
    if (size != left()) refuse(std::to_string(left()) + " bytes behind the head", std::to_string(size));
    if (core::Digest().update(message.substr(at_)).value() != digest) refuse("another XXH64", "that of the head");
  }

  template <class T>
  [[nodiscard]] T number() {
    T out;
    require(1, sizeof out);
    std::memcpy(&out, message_.data() + at_, sizeof out);
    at_ += sizeof out;
    return out;
  }
  // How many things follow, of so many bytes at least each.
  [[nodiscard]] std::size_t count(std::size_t bytes) {
    const auto count = number<std::uint64_t>();
    require(count, bytes);
    return count;
  }
  template <class T>
  [[nodiscard]] std::vector<T> list() {
    std::vector<T> out(count(sizeof(T)));
    if (!out.empty()) std::memcpy(out.data(), message_.data() + at_, out.size() * sizeof(T));
    at_ += out.size() * sizeof(T);
    return out;
  }
  [[nodiscard]] std::string text() {
    const std::size_t size = count(1);
    std::string out(message_.substr(at_, size));
    at_ += size;
    return out;
  }
  [[nodiscard]] std::uint8_t below(std::uint8_t end, const char* what) {
    const auto out = number<std::uint8_t>();
    if (out >= end) refuse(std::string(what) + " " + std::to_string(out), "below " + std::to_string(end));
    return out;
  }
  [[nodiscard]] data::Json value(int level = 0) {
    if (level > wire_levels) refuse("JSON of more levels", "at most " + std::to_string(wire_levels));
    switch (static_cast<WireValue>(below(static_cast<std::uint8_t>(WireValue::object) + 1, "a kind of value"))) {
      case WireValue::null:
        return nullptr;
      case WireValue::no:
        return false;
      case WireValue::yes:
        return true;
      case WireValue::integer:
        return number<std::int64_t>();
      case WireValue::natural:
        return number<std::uint64_t>();
      case WireValue::real:
        return number<double>();
      case WireValue::text:
        return text();
      case WireValue::list: {
        data::Json out = data::Json::array();
        for (std::size_t left = count(1); left > 0; --left) out.push_back(value(level + 1));
        return out;
      }
      case WireValue::object: {
        data::Json::object_t out;
        for (std::size_t left = count(9); left > 0; --left) {
          std::string name = text();
          // At the end, whatever the names are: a search among those before takes the square of their number.
          static_cast<data::Json::object_t::Container&>(out).emplace_back(std::move(name), value(level + 1));
        }
        return out;
      }
    }
    return nullptr;
  }
  void end() const {
    if (left() > 0) refuse(std::to_string(left()) + " bytes behind the part", "none");
  }
  [[noreturn]] void refuse(const std::string& found, const std::string& expected) const {
    core::raise(
        "sampler", 10,
        {.what = "what another rank sent of a generation cannot be read",
         .found = found,
         .expected = expected,
         .where = "byte " + std::to_string(at_) + " of " + std::to_string(message_.size()) + " from rank " +
                  std::to_string(rank_),
         .remedy = "start all ranks with the same build of rlalgo; if they are, go on from the last checkpoint"});
  }

 private:
  [[nodiscard]] std::size_t left() const { return message_.size() - at_; }
  void require(std::uint64_t count, std::size_t bytes) const {
    if (count > left() / bytes)
      refuse(std::to_string(left()) + " bytes left", std::to_string(count) + " times " + std::to_string(bytes));
  }

  std::string_view message_;
  std::size_t at_;
  int rank_;
};

inline void pack_row(const data::Row& row, PartWriter& out) {
  out.number(static_cast<std::uint8_t>(row.own_prompt));
  if (row.own_prompt) out.list(row.prompt_ids);
  out.list(row.completion_ids);
  out.list(row.sampling_log_probs);
  out.list(row.old_log_probs);
  out.list(row.reference_log_probs);
  out.list(row.loss_mask);
  out.list(row.routed_experts);
  out.number(static_cast<std::uint8_t>(row.finish));
  out.number(row.weights_version);
}
inline data::Row unpack_row(PartReader& in, const data::TokenizedPrompt& prompt) {
  data::Row row;
  row.own_prompt = in.below(2, "a flag of a prompt") == 1;
  row.prompt_ids = row.own_prompt ? in.list<data::TokenId>() : prompt.ids;
  row.completion_ids = in.list<data::TokenId>();
  row.sampling_log_probs = in.list<float>();
  row.old_log_probs = in.list<float>();
  row.reference_log_probs = in.list<float>();
  row.loss_mask = in.list<std::uint8_t>();
  row.routed_experts = in.list<std::uint16_t>();
  row.finish = static_cast<data::Finish>(in.below(3, "a way to finish"));
  row.weights_version = in.number<std::int64_t>();
  const std::size_t tokens = row.completion_ids.size();
  for (const std::size_t size :
       {row.sampling_log_probs.size(), row.old_log_probs.size(), row.reference_log_probs.size(), row.loss_mask.size()})
    if (size != 0 && size != tokens)
      in.refuse(std::to_string(size) + " numbers of a completion", std::to_string(tokens) + ", of its tokens");
  return row;
}

inline void pack_interaction(const data::Interaction& e, PartWriter& out) {
  out.value(e.messages);
  out.text(e.last_text);
  out.number(e.reward);
  out.number(e.turns);
  out.number(static_cast<std::uint8_t>(e.has_tools));
  out.number(e.tool_calls);
  out.number(e.tool_failures);
  out.value(e.columns);
  out.value(e.prompt);
  out.text(e.failure);
}
inline std::shared_ptr<const data::Interaction> unpack_interaction(PartReader& in) {
  data::Interaction e;
  e.messages = in.value();
  e.last_text = in.text();
  e.reward = in.number<double>();
  e.turns = in.number<std::int64_t>();
  e.has_tools = in.below(2, "a flag of tools") == 1;
  e.tool_calls = in.number<std::int64_t>();
  e.tool_failures = in.number<std::int64_t>();
  e.columns = in.value();
  e.prompt = in.value();
  e.failure = in.text();
  return std::make_shared<const data::Interaction>(std::move(e));
}

RLALGO_INLINE std::string pack_part(const GenerationPart& part) {
  PartWriter out;
  out.number(part.tokens);
  out.list(part.lengths.numbers());
  out.number(static_cast<std::uint64_t>(part.about.metrics.entries().size()));
  for (const core::Metrics::Entry& e : part.about.metrics.entries()) {
    out.text(e.name);
    out.number(static_cast<std::uint8_t>(e.kind));
    out.number(e.value);
    out.number(e.weight);
  }
  out.number(static_cast<std::uint64_t>(part.about.warnings.size()));
  for (const std::string& warning : part.about.warnings) out.text(warning);
  out.number(static_cast<std::uint64_t>(part.generation->episodes.size()));
  for (const data::Episode& r : part.generation->episodes) {
    out.number(r.dataset_row);
    out.list(r.rewards);
    out.value(r.logged);
    out.number(static_cast<std::uint8_t>(r.interaction != nullptr));
    if (r.interaction) pack_interaction(*r.interaction, out);
    out.number(static_cast<std::uint64_t>(r.rows.size()));
    for (const data::Row& row : r.rows) pack_row(row, out);
  }
  return std::move(out).message();
}

inline void unpack_metrics(PartReader& in, core::Metrics& metrics) {
  for (std::size_t left = in.count(8 + 1 + 8 + 8); left > 0; --left) {
    const std::string name = in.text();
    const auto kind = static_cast<core::Metrics::Kind>(in.below(4, "a kind of metric"));
    const auto value = in.number<double>(), weight = in.number<double>();
    metrics.add({name, kind, value, weight});
  }
}

inline data::Episode unpack_episode(PartReader& in, const data::TokenizedPrompt& prompt, std::size_t rewards) {
  if (const auto row = in.number<std::int64_t>(); row != prompt.row)
    in.refuse("a completion of dataset row " + std::to_string(row), "one of row " + std::to_string(prompt.row));
  std::vector<double> values = in.list<double>();
  if (values.size() != rewards) in.refuse(std::to_string(values.size()) + " rewards", std::to_string(rewards));
  data::Json logged = in.value();
  auto interaction = in.below(2, "a flag of an episode") == 1 ? unpack_interaction(in) : nullptr;
  const std::size_t rows = in.count(1);
  if (rows == 0) in.refuse("no row of a completion", "one or more");
  data::Episode out;
  out.rows.clear();
  for (std::size_t k = 0; k < rows; ++k) out.rows.push_back(unpack_row(in, prompt));
  out.dataset_row = prompt.row;
  out.prompt = prompt.prompt;
  out.interaction = std::move(interaction);
  out.rewards = std::move(values);
  out.logged = std::move(logged);
  out.columns = prompt.columns;
  return out;
}

RLALGO_INLINE GenerationPart unpack_part(std::string_view bytes, const ExpectedPart& expected) {
  PartReader in(bytes, expected.rank);
  GenerationPart part;
  part.tokens = in.number<std::int64_t>();
  const std::vector<double> lengths = in.list<double>();
  if (lengths.size() != CompletionLengths().numbers().size())
    in.refuse(std::to_string(lengths.size()) + " numbers of lengths",
              std::to_string(CompletionLengths().numbers().size()));
  part.lengths.merge(lengths);
  unpack_metrics(in, part.about.metrics);
  for (std::size_t left = in.count(8); left > 0; --left) part.about.warnings.push_back(in.text());
  const std::size_t episodes = in.count(8);
  if (episodes != expected.chosen.size() * expected.copies)
    in.refuse(std::to_string(episodes) + " completions", std::to_string(expected.chosen.size() * expected.copies));
  part.generation = std::make_shared<Generation>();
  Generation& generation = *part.generation;
  generation.rewards = table_of(expected.rewards, episodes);
  for (std::size_t i = 0; i < episodes; ++i) {
    const data::TokenizedPrompt& prompt = expected.prompts[expected.chosen[i / expected.copies]];
    data::Episode r = unpack_episode(in, prompt, expected.rewards.size());
    if (i % expected.copies == 0) {
      r.answer_ids = prompt.answer_ids;
      r.answer_mask = prompt.answer_mask;
    }
    for (std::size_t k = 0; k < r.rewards.size(); ++k) generation.rewards(i, k) = r.rewards[k];
    generation.episodes.push_back(std::move(r));
  }
  for (std::size_t g = 0; g < expected.chosen.size(); ++g) generation.groups.append(expected.copies);
  in.end();
  return part;
}

}  // namespace rlalgo::sampler::detail
