// Normalizers: rewrite a text before it is split.
//
// Supported types: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace,
// Precompiled (charsmap.hpp).
//
// Errors: [rlalgo.text.3] another type. [rlalgo.text.4] a bad pattern in Replace. [rlalgo.text.5] a damaged charsmap.
#pragma once

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uniset.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/core/base64.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/charsmap.hpp>
#include <rlalgo/text/detail/pre_tokenizer.hpp>
#include <rlalgo/text/detail/split_pattern.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(const Json& spec) { add(spec); }

  [[nodiscard]] bool empty() const noexcept { return steps_.empty(); }

  [[nodiscard]] std::string apply(std::string_view text) const {
    std::string current(text);
    for (const Step& step : steps_) {
      run(step, current);
      check_growth(text.size(), current.size());
    }
    return current;
  }

 private:
  enum class Kind { unicode_form, lowercase, strip, strip_accents, prepend, replace, precompiled };

  struct Step {
    Kind kind;
    const icu::Normalizer2* form = nullptr;
    bool composed = false;
    bool left = false, right = false;   // Strip
    std::string content;                // Prepend, Replace
    std::vector<SplitPattern> pattern;  // Replace
    std::vector<Charsmap> map;          // Precompiled
  };

  void add(const Json& spec) {
    if (spec.is_null()) return;
    const std::string type = spec.value("type", "");
    Step step{};
    if (type == "Sequence") {
      for (const Json& part : spec.at("normalizers")) add(part);
      return;
    }
    if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
      step.kind = Kind::unicode_form;
      step.composed = type.back() == 'C';
      UErrorCode status = U_ZERO_ERROR;
      step.form = icu::Normalizer2::getInstance(nullptr, type.size() == 4 ? "nfkc" : "nfc",
                                                step.composed ? UNORM2_COMPOSE : UNORM2_DECOMPOSE, status);
      if (U_FAILURE(status) != 0)
        refuse_component("normalizer", type, "a Unicode normalization form that ICU has data for");
    } else if (type == "Lowercase") {
      step.kind = Kind::lowercase;
    } else if (type == "Strip") {
      step.kind = Kind::strip;
      step.left = spec.value("strip_left", true);
      step.right = spec.value("strip_right", true);
    } else if (type == "StripAccents") {
      step.kind = Kind::strip_accents;
    } else if (type == "Prepend") {
      step.kind = Kind::prepend;
      step.content = spec.at("prepend").get<std::string>();
    } else if (type == "Replace") {
      step.kind = Kind::replace;
      step.content = spec.at("content").get<std::string>();
      const Json& pattern = spec.at("pattern");
      step.pattern.push_back(pattern.contains("Regex")
                                 ? SplitPattern(pattern.at("Regex").get<std::string>())
                                 : SplitPattern::literal(pattern.at("String").get<std::string>()));
    } else if (type == "Precompiled") {
      step.kind = Kind::precompiled;
      const auto bytes = core::from_base64(spec.at("precompiled_charsmap").get_ref<const std::string&>());
      if (!bytes) raise_bad_json("tokenizer.json", "a precompiled_charsmap that is not base64");
      step.map.emplace_back(std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size()));
    } else {
      refuse_component(
          "normalizer", type,
          "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Prepend, Replace or Precompiled");
    }
    steps_.push_back(std::move(step));
  }

  // The normalization forms of the tokenizers library are those of Unicode 9.0; newer characters pass unchanged.
  static const icu::UnicodeSet& known_characters() {
    static const icu::UnicodeSet set = [] {
      UErrorCode status = U_ZERO_ERROR;
      icu::UnicodeSet known(icu::UnicodeString::fromUTF8("[:age=9.0:]"), status);
      known.freeze();
      return known;
    }();
    return set;
  }

  static void run(const Step& step, std::string& text) {
    switch (step.kind) {
      case Kind::unicode_form: {
        if (is_ascii(text)) return;
        UErrorCode status = U_ZERO_ERROR;
        if (step.form->isNormalizedUTF8(text, status) != 0) return;
        std::string out;
        icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
        icu::FilteredNormalizer2(*step.form, known_characters()).normalizeUTF8(0, text, sink, nullptr, status);
        if (U_FAILURE(status) != 0) refuse_component("text", u_errorName(status), "text that ICU can normalize");
        text = std::move(out);
        return;
      }
      case Kind::lowercase: {
        std::string out;
        for_each_scalar(text, [&](char32_t c, std::string_view) {
          if (c == 0x130) {
            out += "i\xCC\x87";  // the one character whose lower case is two
          } else {
            append_utf8(out, lower_case(c));
          }
        });
        text = std::move(out);
        return;
      }
      case Kind::strip: {
        std::size_t begin = 0, end = text.size();
        while (step.left && begin < end) {
          const Scalar scalar = scalar_at(text, begin);
          if (!is_space(scalar.value)) break;
          begin += scalar.length;
        }
        while (step.right && end > begin) {
          const std::size_t last = previous_scalar(text, end);
          if (!is_space(scalar_at(text, last).value)) break;
          end = last;
        }
        text = text.substr(begin, end - begin);
        return;
      }
      case Kind::strip_accents: {
        std::string out;
        for_each_scalar(text, [&](char32_t c, std::string_view bytes) {
          if (!is_accent(c)) out += bytes;
        });
        text = std::move(out);
        return;
      }
      case Kind::prepend:
        if (!text.empty()) text.insert(0, step.content);
        return;
      case Kind::replace: {
        std::string out;
        step.pattern[0].split(text, {0, text.size()}, [&](Span span, bool match) {
          out +=
              match ? std::string_view(step.content) : std::string_view(text).substr(span.begin, span.end - span.begin);
        });
        text = std::move(out);
        return;
      }
      case Kind::precompiled:
        text = step.map[0].apply(text);
        return;
    }
  }

  template <class Visit>
  static void for_each_scalar(std::string_view text, Visit visit) {
    for (std::size_t i = 0; i < text.size();) {
      const Scalar scalar = scalar_at(text, i);
      visit(scalar.value, text.substr(i, scalar.length));
      i += scalar.length;
    }
  }

  std::vector<Step> steps_;
};

}  // namespace rlalgo::text::detail
