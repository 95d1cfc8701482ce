// Pre-tokenizers: a normalized text → the pieces that BPE encodes one by one.
//
// Supported types: Sequence, Split (all five behaviors, regex or string, inverted or not), Digits, ByteLevel,
// WhitespaceSplit, Punctuation, Metaspace. The byte-to-character mapping of ByteLevel is not carried out:
// the byte-level model takes bytes (bpe.hpp), so ByteLevel must come last.
//
// Errors: [rlalgo.text.3] another type, or ByteLevel before another step. [rlalgo.text.4] a bad pattern.
// [rlalgo.text.5] replacements that make a text too long.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/split_pattern.hpp>
#include <rlalgo/text/detail/tokenizer_file.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

[[noreturn]] inline void refuse_component(const std::string& part, const std::string& type,
                                          const std::string& expected) {
  core::raise("text", 3,
              {.what = "tokenizer.json uses a " + part + " that is not supported",
               .found = type.empty() ? "no type" : "'" + type + "'",
               .expected = expected,
               .where = part,
               .remedy = "use a byte-level BPE tokenizer (GPT-2, Llama-3, Qwen, SmolLM2 …) or convert this one"});
}

// A chain of replacements may not blow a text up without end: at most 64 times, and a megabyte.
inline void check_growth(std::size_t before, std::size_t now) {
  if (now <= 64 * before + (1U << 20U)) return;
  core::raise("text", 5,
              {.what = "the tokenizer's replacements make a text too long",
               .found = std::to_string(now) + " bytes of " + std::to_string(before),
               .where = "normalizer or decoder in tokenizer.json",
               .remedy = "the tokenizer files do not belong together or are damaged"});
}

// A field that holds one character.
[[nodiscard]] inline std::string one_character(const Json& spec, const char* name, const char* otherwise) {
  const auto text = otherwise == nullptr ? spec.at(name).get<std::string>() : spec.value(name, otherwise);
  if (text.empty() || scalar_at(text, 0).length != text.size())
    raise_bad_json("tokenizer.json", "'" + text + "' as " + name + ", which must be one character");
  return text;
}

// A text and its current pieces. Steps either refine the pieces or rewrite the text.
struct PreText {
  std::string text;
  std::vector<Span> pieces;
  bool at_start = true;  // the text begins where the caller's input began (Metaspace's prepend_scheme "first")
};

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

class PreTokenizer {
 public:
  PreTokenizer() = default;
  explicit PreTokenizer(const Json& spec) { add(spec, true); }

  // Pieces are bytes to a byte-level model.
  [[nodiscard]] bool byte_level() const noexcept { return byte_level_; }

  void apply(PreText& pre) const {
    for (const Step& step : steps_) run(step, pre);
  }

 private:
  enum class Kind { split, digits, byte_level, whitespace_split, punctuation, metaspace };

  struct Step {
    Kind kind;
    std::vector<SplitPattern> pattern;  // none or one
    Behavior behavior = Behavior::isolated;
    bool invert = false;
    bool flag = false;                // Digits: individually; ByteLevel: leading space; Metaspace: split
    std::string replacement, scheme;  // Metaspace
  };

  static Behavior behavior_of(const Json& spec) {
    const std::string name = spec.value("behavior", "");
    if (name == "Removed") return Behavior::removed;
    if (name == "Isolated") return Behavior::isolated;
    if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
    if (name == "MergedWithNext") return Behavior::merged_with_next;
    if (name == "Contiguous") return Behavior::contiguous;
    refuse_component("pre_tokenizer behavior", name,
                     "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  }

  static SplitPattern pattern_of(const Json& spec) {
    const Json& pattern = spec.at("pattern");
    if (pattern.contains("Regex")) return SplitPattern(pattern.at("Regex").get<std::string>());
    return SplitPattern::literal(pattern.at("String").get<std::string>());
  }

  void add(const Json& spec, bool last) {
    if (spec.is_null()) return;
    const std::string type = spec.value("type", "");
    Step step{};
    if (type == "Sequence") {
      const Json& parts = spec.at("pretokenizers");
      for (std::size_t i = 0; i < parts.size(); ++i) add(parts[i], last && i + 1 == parts.size());
      return;
    }
    if (type == "Split") {
      step.kind = Kind::split;
      step.pattern.push_back(pattern_of(spec));
      step.behavior = behavior_of(spec);
      step.invert = spec.value("invert", false);
    } else if (type == "Digits") {
      step.kind = Kind::digits;
      step.flag = spec.value("individual_digits", false);
    } else if (type == "ByteLevel") {
      if (!last) refuse_component("pre_tokenizer order", type, "ByteLevel as the last step");
      byte_level_ = true;
      step.kind = Kind::byte_level;
      step.flag = spec.value("add_prefix_space", true);
      if (spec.value("use_regex", true)) step.pattern.emplace_back(std::string(known_patterns[0].regex));
    } else if (type == "WhitespaceSplit") {
      step.kind = Kind::whitespace_split;
    } else if (type == "Punctuation") {
      step.kind = Kind::punctuation;
      step.behavior = spec.contains("behavior") ? behavior_of(spec) : Behavior::isolated;
    } else if (type == "Metaspace") {
      step.kind = Kind::metaspace;
      step.replacement = one_character(spec, "replacement", "\xE2\x96\x81");
      step.scheme = spec.contains("prepend_scheme")        ? spec.value("prepend_scheme", "always")
                    : spec.value("add_prefix_space", true) ? "always"
                                                           : "never";
      step.flag = spec.value("split", true);
    } else {
      refuse_component("pre_tokenizer", type,
                       "Sequence, Split, Digits, ByteLevel, WhitespaceSplit, Punctuation or Metaspace");
    }
    steps_.push_back(std::move(step));
  }

  // Turns matches and gaps into pieces, as the behavior says.
  class Collector {
   public:
    Collector(std::vector<Span>& out, Behavior behavior, bool invert)
        : out_(out), behavior_(behavior), invert_(invert) {}

    void begin() { previous_match_ = false, first_ = true; }
    void operator()(Span span, bool match) {
      if (invert_) match = !match;
      switch (behavior_) {
        case Behavior::removed:
          if (!match) push(span);
          break;
        case Behavior::isolated:
          push(span);
          break;
        case Behavior::contiguous:
          match == previous_match_ && !first_ ? extend(span) : push(span);
          break;
        case Behavior::merged_with_previous:
          match && !previous_match_ && !first_ ? extend(span) : push(span);
          break;
        case Behavior::merged_with_next:
          !match&& previous_match_ && !first_ ? extend(span) : push(span);
          break;
      }
      previous_match_ = match;
      first_ = false;
    }

   private:
    void push(Span span) {
      if (span.begin < span.end) out_.push_back(span);
    }
    void extend(Span span) {
      out_.empty() || out_.back().end != span.begin ? push(span) : void(out_.back().end = span.end);
    }
    std::vector<Span>& out_;
    Behavior behavior_;
    bool invert_;
    bool previous_match_ = false;
    bool first_ = true;
  };

  // Splits by a property of single characters; each matching character is one match.
  template <class Predicate>
  static void split_characters(const PreText& pre, Behavior behavior, std::vector<Span>& out, Predicate predicate) {
    Collector collect(out, behavior, false);
    for (const Span piece : pre.pieces) {
      collect.begin();
      std::size_t gap = piece.begin;
      for (std::size_t i = piece.begin; i < piece.end;) {
        const Scalar scalar = scalar_at(pre.text, i);
        if (predicate(scalar.value)) {
          if (gap < i) collect({gap, i}, false);
          collect({i, i + scalar.length}, true);
          gap = i + scalar.length;
        }
        i += scalar.length;
      }
      if (gap < piece.end) collect({gap, piece.end}, false);
    }
  }

  static void run(const Step& step, PreText& pre) {
    std::vector<Span> out;
    out.reserve(pre.pieces.size() + pre.text.size() / 4);
    switch (step.kind) {
      case Kind::split: {
        Collector collect(out, step.behavior, step.invert);
        for (const Span piece : pre.pieces) {
          collect.begin();
          step.pattern[0].split(pre.text, piece, [&](Span span, bool match) { collect(span, match); });
        }
        break;
      }
      case Kind::digits:
        split_characters(pre, step.flag ? Behavior::isolated : Behavior::contiguous, out,
                         [](char32_t c) { return is_numeric(c); });
        break;
      case Kind::whitespace_split:
        split_characters(pre, Behavior::removed, out, [](char32_t c) { return is_space(c); });
        break;
      case Kind::punctuation:
        split_characters(pre, step.behavior, out, [](char32_t c) { return is_punctuation(c); });
        break;
      case Kind::byte_level:
        if (step.flag) {
          rewrite(pre, [](std::string_view piece, std::size_t, std::string& to) {
            if (!piece.starts_with(' ')) to += ' ';
            to += piece;
          });
        }
        if (step.pattern.empty()) return;
        for (const Span piece : pre.pieces) {
          step.pattern[0].split(pre.text, piece, [&](Span span, bool) { out.push_back(span); });
        }
        break;
      case Kind::metaspace:
        metaspace(step, pre, out);
        break;
    }
    pre.pieces = std::move(out);
  }

  template <class Edit>
  static void rewrite(PreText& pre, Edit edit) {
    std::string text;
    text.reserve(pre.text.size() + pre.pieces.size() + 16);
    for (std::size_t i = 0; i < pre.pieces.size(); ++i) {
      Span& piece = pre.pieces[i];
      const std::size_t begin = text.size();
      edit(std::string_view(pre.text).substr(piece.begin, piece.end - piece.begin), i, text);
      piece = {begin, text.size()};
    }
    pre.text = std::move(text);
  }

  static void metaspace(const Step& step, PreText& pre, std::vector<Span>& out) {
    rewrite(pre, [&](std::string_view piece, std::size_t index, std::string& to) {
      std::string replaced;
      for (const char c : piece) c == ' ' ? replaced += step.replacement : replaced += c;
      const bool prepend = step.scheme == "always" || (step.scheme == "first" && pre.at_start && index == 0);
      if (prepend && !std::string_view(replaced).starts_with(step.replacement)) to += step.replacement;
      to += replaced;
    });
    if (!step.flag) {
      out = pre.pieces;
      return;
    }
    const SplitPattern pattern = SplitPattern::literal(step.replacement);
    Collector collect(out, Behavior::merged_with_next, false);
    for (const Span piece : pre.pieces) {
      collect.begin();
      pattern.split(pre.text, piece, [&](Span span, bool match) { collect(span, match); });
    }
  }

  std::vector<Step> steps_;
  bool byte_level_ = false;
};

}  // namespace rlalgo::text::detail
