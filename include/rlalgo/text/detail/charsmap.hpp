// The compiled normalizer of SentencePiece models ("Precompiled"): a table of byte strings and what replaces them.
//
//   text → extended grapheme clusters (Unicode 17); a cluster of at most 5 bytes is looked up whole, and if the table
//   holds none of its prefixes, or the cluster is longer, each of its characters on its own. What is not found stays. A
//   lookup answers with the shortest key that is a prefix of what is looked up, so a cluster can lose its marks.
//
// Source: normalizer_spec.precompiled_charsmap of SentencePiece (Kudo and Richardson 2018, arXiv:1808.06226), as the
// tokenizers library reads it; the table is a double-array trie of Darts-clone. The form in bytes, little endian:
// u32 size of the trie in bytes; the trie's units, u32 each; replacements, each ended by a zero byte.
// A unit: bits 0-7 label, bit 8 has a leaf, bit 9 offset is shifted by 8, bits 10-31 offset; a leaf: bits 0-30 the
// replacement's index, bit 31 set.
//
// Errors: [rlalgo.text.5] the table is damaged: sizes that contradict each other, an index outside; a text that grows
// too long.
#pragma once

#include <unicode/brkiter.h>
#include <unicode/locid.h>
#include <unicode/uchar.h>
#include <unicode/utext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/pre_tokenizer.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

class Charsmap {
 public:
  explicit Charsmap(std::string_view bytes) {
    const std::size_t size = bytes.size() < 4 ? 0 : word(bytes, 0);
    if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) damaged(std::to_string(bytes.size()) + " bytes");
    units_.reserve(size / 4);
    for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(word(bytes, at));
    replacements_ = bytes.substr(4 + size);
    if (!is_valid_utf8(replacements_)) damaged("replacements that are not UTF-8");
  }

  [[nodiscard]] std::string apply(std::string_view text) const {
    std::string out;
    out.reserve(text.size());
    for_each_cluster(text, [&](std::string_view cluster) {
      check_growth(text.size(), out.size());
      if (cluster.size() <= 5) {
        if (const std::optional<std::string_view> found = find(cluster)) {
          out += *found;
          return;
        }
      }
      for (std::size_t i = 0; i < cluster.size();) {
        const std::string_view character = cluster.substr(i, scalar_at(cluster, i).length);
        out += find(character).value_or(character);
        i += character.size();
      }
    });
    return out;
  }

  // What replaces the shortest prefix of `key` that the table has.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view key) const {
    std::size_t node = offset(units_[0]);
    for (const char c : key) {
      const auto label = static_cast<std::uint8_t>(c);
      if (label == 0) return std::nullopt;
      node ^= label;
      const std::uint32_t found = unit(node);
      if ((found & (1U << 31U | 0xFFU)) != label) return std::nullopt;
      node ^= offset(found);
      if ((found >> 8U & 1U) == 0) continue;
      const std::size_t begin = unit(node) & ~(1U << 31U);
      if (begin >= replacements_.size() || (static_cast<std::uint8_t>(replacements_[begin]) & 0xC0U) == 0x80U)
        damaged("a replacement at " + std::to_string(begin));
      return std::string_view(replacements_).substr(begin, replacements_.find('\0', begin) - begin);
    }
    return std::nullopt;
  }

 private:
  [[noreturn]] static void damaged(const std::string& found) {
    core::raise("text", 5,
                {.what = "the tokenizer's precompiled_charsmap is damaged",
                 .found = found,
                 .where = "normalizer in tokenizer.json",
                 .remedy = "copy the model directory again"});
  }

  static std::uint32_t word(std::string_view bytes, std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i)
      value |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(bytes[at + i])) << (8 * i);
    return value;
  }

  static std::size_t offset(std::uint32_t unit) {
    return static_cast<std::size_t>(unit >> 10U) << ((unit & 1U << 9U) >> 6U);
  }

  [[nodiscard]] std::uint32_t unit(std::size_t node) const {
    if (node >= units_.size()) damaged("a unit " + std::to_string(node) + " of " + std::to_string(units_.size()));
    return units_[node];
  }

  template <class Visit>
  static void for_each_cluster(std::string_view text, Visit visit) {
    if (is_ascii(text)) {  // only a line end is a cluster of two
      for (std::size_t i = 0; i < text.size();) {
        const std::size_t length = text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n' ? 2 : 1;
        visit(text.substr(i, length));
        i += length;
      }
      return;
    }
    UErrorCode status = U_ZERO_ERROR;
    thread_local const std::unique_ptr<icu::BreakIterator> clusters(
        icu::BreakIterator::createCharacterInstance(icu::Locale::getRoot(), status));
    UText bytes = UTEXT_INITIALIZER;
    utext_openUTF8(&bytes, text.data(), static_cast<std::int64_t>(text.size()), &status);
    if (clusters == nullptr && U_SUCCESS(status) != 0) status = U_MISSING_RESOURCE_ERROR;
    if (U_SUCCESS(status) != 0) clusters->setText(&bytes, status);
    utext_close(&bytes);
    if (U_FAILURE(status) != 0) {
      core::raise("text", 5,
                  {.what = "cannot find the characters of a text",
                   .found = u_errorName(status),
                   .expected = "ICU's data for character breaks",
                   .remedy = "reinstall ICU (Debian: libicu72)"});
    }
    std::size_t begin = 0;
    for (clusters->first(); begin < text.size();) {
      std::size_t end = static_cast<std::size_t>(clusters->next());
      while (end < text.size() && continues(text, begin, end)) end = static_cast<std::size_t>(clusters->next());
      visit(text.substr(begin, end - begin));
      begin = end;
    }
  }

  // Characters newer than ICU's Unicode continue a cluster, too, unless it is a control character.
  static bool continues(std::string_view text, std::size_t begin, std::size_t end) {
    const char32_t next = scalar_at(text, end).value;
    const auto is_next = [&](const auto& range) { return range[0] <= next && next <= range[1]; };
    if (std::none_of(std::begin(added_extenders), std::end(added_extenders), is_next)) return false;
    const auto last = static_cast<UChar32>(scalar_at(text, previous_scalar(text, end)).value);
    const int kind = u_getIntPropertyValue(last, UCHAR_GRAPHEME_CLUSTER_BREAK);
    return end > begin && kind != U_GCB_CONTROL && kind != U_GCB_CR && kind != U_GCB_LF;
  }

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace rlalgo::text::detail
