// Where an error happened, added by who knows it to what was raised by who does not: the file and line of a row whose
// chat template fails.
#pragma once

#include <string>
#include <utility>

#include <rlalgo/core/error.hpp>
#include <rlalgo/core/printable.hpp>

namespace rlalgo::core {

namespace detail {

template <class Base>
class Located final : public Base {
 public:
  Located(const Error& error, const std::string& where)
      : Base(error.room(), error.number(), {}),
        text_(std::string(error.what()) + " (" + printable(where, "\t") + ")") {}
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

}  // namespace detail

// Runs `f`; an error that does not name `where` names it behind its text. Room, number and exit status stay.
template <class F>
decltype(auto) located(const std::string& where, F&& f) {
  const auto names = [&](const Error& error) { return std::string(error.what()).find(where) != std::string::npos; };
  try {
    return std::forward<F>(f)();
  } catch (const UsageError& error) {
    if (names(error)) throw;
    throw detail::Located<UsageError>(error, where);
  } catch (const Error& error) {
    if (!error.failure() || names(error)) throw;
    throw detail::Located<Error>(error, where);
  }
}

}  // namespace rlalgo::core
