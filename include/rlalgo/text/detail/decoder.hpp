// Decoders: token strings → text.
//
// Supported types: ByteLevel, Sequence, Replace, ByteFallback, Fuse, Strip, Metaspace. Without a decoder, tokens are
// joined by spaces.
//
// Errors: [rlalgo.text.3] another type. [rlalgo.text.4] a bad pattern in Replace.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/byte_level.hpp>
#include <rlalgo/text/detail/pre_tokenizer.hpp>
#include <rlalgo/text/detail/split_pattern.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(const Json& spec) { add(spec); }

  // True if decoding is concatenating the bytes of the tokens: the only step is ByteLevel.
  [[nodiscard]] bool byte_level() const noexcept { return steps_.size() == 1 && steps_[0].kind == Kind::byte_level; }

  // True if what this token decodes to depends on the next one: bytes are read together.
  [[nodiscard]] bool waits_for_next(std::string_view token) const {
    if (byte_of(token) < 0) return false;
    for (const Step& step : steps_) {
      if (step.kind == Kind::byte_fallback) return true;
    }
    return false;
  }

  [[nodiscard]] std::string apply(std::vector<std::string> tokens) const {
    const auto size = [&] {
      std::size_t bytes = 0;
      for (const std::string& token : tokens) bytes += token.size();
      return bytes;
    };
    const std::size_t before = size();
    for (const Step& step : steps_) {
      run(step, tokens);
      check_growth(before, size());
    }
    std::string text;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && steps_.empty()) text += ' ';
      text += tokens[i];
    }
    return text;
  }

  // The bytes a token stands for under ByteLevel: by the byte alphabet if it is written in it, else its own.
  static std::string token_bytes(const std::string& token) {
    std::optional<std::string> bytes = bytes_of_characters(token);
    return bytes ? *std::move(bytes) : token;
  }

 private:
  enum class Kind { byte_level, replace, byte_fallback, fuse, strip, metaspace };

  struct Step {
    Kind kind;
    std::string content;  // Replace, Strip: one character; Metaspace: the marker
    std::vector<SplitPattern> pattern;
    std::size_t start = 0, stop = 0;
    bool keep_first = false;  // Metaspace: the first token's markers are text
  };

  void add(const Json& spec) {
    if (spec.is_null()) return;
    const std::string type = spec.value("type", "");
    Step step{};
    if (type == "Sequence") {
      for (const Json& part : spec.at("decoders")) add(part);
      return;
    }
    if (type == "ByteLevel") {
      step.kind = Kind::byte_level;
    } else if (type == "Replace") {
      step.kind = Kind::replace;
      step.content = spec.at("content").get<std::string>();
      const Json& pattern = spec.at("pattern");
      step.pattern.push_back(pattern.contains("Regex")
                                 ? SplitPattern(pattern.at("Regex").get<std::string>())
                                 : SplitPattern::literal(pattern.at("String").get<std::string>()));
    } else if (type == "ByteFallback") {
      step.kind = Kind::byte_fallback;
    } else if (type == "Fuse") {
      step.kind = Kind::fuse;
    } else if (type == "Strip") {
      step.kind = Kind::strip;
      step.content = one_character(spec, "content", nullptr);
      step.start = spec.at("start").get<std::size_t>();
      step.stop = spec.at("stop").get<std::size_t>();
    } else if (type == "Metaspace") {
      step.kind = Kind::metaspace;
      step.content = one_character(spec, "replacement", "\xE2\x96\x81");
      const std::string scheme = spec.contains("prepend_scheme")        ? spec.value("prepend_scheme", "always")
                                 : spec.value("add_prefix_space", true) ? "always"
                                                                        : "never";
      step.keep_first = scheme == "never";
    } else {
      refuse_component("decoder", type, "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip or Metaspace");
    }
    steps_.push_back(std::move(step));
  }

  static void run(const Step& step, std::vector<std::string>& tokens) {
    switch (step.kind) {
      case Kind::byte_level: {
        std::string bytes;
        for (const std::string& token : tokens) bytes += token_bytes(token);
        tokens = {to_valid_utf8(bytes)};
        return;
      }
      case Kind::replace:
        for (std::string& token : tokens) {
          std::string out;
          step.pattern[0].split(token, {0, token.size()}, [&](Span span, bool match) {
            out += match ? std::string_view(step.content)
                         : std::string_view(token).substr(span.begin, span.end - span.begin);
          });
          token = std::move(out);
        }
        return;
      case Kind::byte_fallback:
        join_bytes(tokens);
        return;
      case Kind::fuse: {
        std::string all;
        for (const std::string& token : tokens) all += token;
        tokens = {std::move(all)};
        return;
      }
      case Kind::strip:
        for (std::string& token : tokens) {
          std::size_t begin = 0, end = token.size();
          for (std::size_t i = 0;
               i < step.start && token.compare(begin, step.content.size(), step.content) == 0 && begin < end; ++i) {
            begin += step.content.size();
          }
          for (std::size_t i = 0; i < step.stop && end - begin >= step.content.size() &&
                                  token.compare(end - step.content.size(), step.content.size(), step.content) == 0;
               ++i) {
            end -= step.content.size();
          }
          token = token.substr(begin, end - begin);
        }
        return;
      case Kind::metaspace:
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          std::string out;
          const std::string_view token = tokens[i];
          for (std::size_t at = 0; at < token.size();) {
            if (token.substr(at).starts_with(step.content)) {
              if (i != 0 || step.keep_first) out += ' ';
              at += step.content.size();
            } else {
              out += token[at++];
            }
          }
          tokens[i] = std::move(out);
        }
        return;
    }
  }

  // The byte that <0xHH> stands for; negative for other tokens.
  static int byte_of(std::string_view token) {
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                    : -1;
    };
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
    const int high = digit(token[3]), low = digit(token[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
  }

  // A run of <0xHH> tokens becomes its text if that is valid UTF-8, else one U+FFFD per byte.
  static void join_bytes(std::vector<std::string>& tokens) {
    std::vector<std::string> out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (is_valid_utf8(run)) {
        out.push_back(run);
      } else {
        for (std::size_t i = 0; i < run.size(); ++i) out.emplace_back(replacement_character);
      }
      run.clear();
    };
    for (std::string& token : tokens) {
      if (const int byte = byte_of(token); byte >= 0) {
        run += static_cast<char>(byte);
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }

  std::vector<Step> steps_;
};

}  // namespace rlalgo::text::detail
