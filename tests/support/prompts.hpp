// Prompts of a call of reward functions: values that it is given pointers to.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include <rlalgo/reward/function.hpp>

namespace rlalgo::support {

struct Prompts : std::vector<reward::Json> {
  Prompts() = default;
  Prompts(std::initializer_list<reward::Json> values) : std::vector<reward::Json>(values) {}
  Prompts(std::size_t count, const reward::Json& value) : std::vector<reward::Json>(count, value) {}

  operator std::span<const reward::Json* const>() const {
    pointers_.clear();
    for (const reward::Json& value : *this) pointers_.push_back(&value);
    return pointers_;
  }

 private:
  mutable std::vector<const reward::Json*> pointers_;
};

}  // namespace rlalgo::support
