// A request that is not answered as asked: an error with the HTTP status and, where one is to blame, the field.
//
//   refuse_request(400, 3, {.what = "a field has the wrong type", …}, "max_tokens");
//
// The number is of the room serve; docs/errors.md has them all.
#pragma once

#include <string>
#include <utility>

#include <rlalgo/core/error.hpp>

namespace rlalgo::serve {

class Refusal : public core::Error {
 public:
  Refusal(int status, std::string field, const core::Error& error, std::string code = {})
      : core::Error(error), status_(status), field_(std::move(field)), code_(std::move(code)) {}

  [[nodiscard]] int status() const noexcept { return status_; }
  [[nodiscard]] const std::string& field() const noexcept { return field_; }
  // A word that programs look for, as OpenAI has it; "": the status stands for it.
  [[nodiscard]] const std::string& code() const noexcept { return code_; }

 private:
  int status_;
  std::string field_, code_;
};

inline constexpr const char* context_exceeded = "context_length_exceeded";

[[noreturn]] inline void refuse_request(int status, int number, const core::ErrorText& text, std::string field = {},
                                        std::string code = {}) {
  throw Refusal(status, std::move(field), core::Error("serve", number, text), std::move(code));
}

}  // namespace rlalgo::serve
