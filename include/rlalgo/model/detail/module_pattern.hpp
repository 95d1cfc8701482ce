// Regular expressions over module paths, with the meaning that Python's `re` gives them (PCRE2 agrees on this subset).
//
// Errors (usage): [rlalgo.model.26] the pattern does not compile, or runs too long.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <rlalgo/core/error.hpp>

namespace rlalgo::model::detail {

class ModulePattern {
 public:
  // `whole`: the pattern must cover the path (re.fullmatch); else it starts where the path starts (re.match).
  ModulePattern(const std::string& pattern, bool whole) : text_(pattern) {
    int number = 0;
    PCRE2_SIZE offset = 0;
    const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | (whole ? PCRE2_ENDANCHORED : 0U);
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &number, &offset,
                              nullptr));
    if (code_ == nullptr) {
      PCRE2_UCHAR message[160] = {};
      pcre2_get_error_message(number, message, sizeof message);
      fail(reinterpret_cast<const char*>(message), "character " + std::to_string(offset));
    }
    data_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    context_.reset(pcre2_match_context_create(nullptr));
    pcre2_set_match_limit(context_.get(), 1'000'000);
  }

  [[nodiscard]] bool matches(std::string_view path) const {
    const int count = run(path);
    return count >= 0;
  }

  // The first group of a match, "" when there is none.
  [[nodiscard]] std::string group(std::string_view path) const {
    if (run(path) < 2) return {};
    const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data_.get());
    return std::string(path.substr(at[2], at[3] - at[2]));
  }

 private:
  int run(std::string_view path) const {
    const int count = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(path.data()), path.size(), 0, 0,
                                  data_.get(), context_.get());
    if (count < 0 && count != PCRE2_ERROR_NOMATCH) fail("it needs too many steps", "path " + std::string(path));
    return count;
  }

  [[noreturn]] void fail(const std::string& why, const std::string& where) const {
    core::raise_usage("model", 26,
                      {.what = "a module pattern cannot be used",
                       .found = text_ + " (" + why + ")",
                       .expected = "a regular expression",
                       .where = where});
  }

  struct Free {
    void operator()(pcre2_code* p) const { pcre2_code_free(p); }
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
    void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  };
  std::string text_;
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> data_;
  std::unique_ptr<pcre2_match_context, Free> context_;
};

}  // namespace rlalgo::model::detail
