// Optional members of a part (a loss, a sampler, a sync policy …): the part declares those that it has, so that a misspelt one is
// an error of compilation and not an absent one.
//
//   struct MySync {
//     static constexpr sync::Hooks hooks{.forget = true};   // a name that sync::Hooks lacks does not compile
//     void forget();                                        // nor does a declared hook that is not there,
//   };                                                      // nor one that is there and not declared
//
// A kind of parts has an aggregate `Hooks` of bools, and a function hooks_of<Part>() that gives what a part declares (nothing
// without a member `hooks`) and holds it against what is there: RLALGO_HOOK, once for each name.
#pragma once

#include <concepts>
#include <type_traits>

namespace rlalgo::core {

// What `Part` declares of the hooks of a kind.
template <class Part, class Hooks>
[[nodiscard]] constexpr Hooks declared_hooks() {
  if constexpr (requires { Part::hooks; }) {
    static_assert(std::same_as<std::remove_cvref_t<decltype(Part::hooks)>, Hooks>,
                  "`hooks` of this part is of another kind of parts");
    return Part::hooks;
  } else {
    return {};
  }
}

}  // namespace rlalgo::core

// In hooks_of<Part>(), where `declared` is a constant: `...` is whether the member is there.
#define RLALGO_HOOK(name, ...)                                                                                       \
  static_assert(declared.name == (__VA_ARGS__), "the optional member `" #name                                        \
                                                "` of this part is declared in its `hooks` and not there, or there " \
                                                "and not declared: is one misspelt, or of another type?")
