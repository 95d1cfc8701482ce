// What a completion is, as a choice of assembly/completions.hpp: a single answer (Plain), a conversation with environments (turns.hpp),
// what a user's function returns (rolled_out.hpp), or what an agent does (agents.hpp).
//
// A Form is put around who draws. `exclusive`: one completion is made by several calls, so that no weights may change in between.
// `asks_server`: others than this program draw, from a server.
#pragma once

#include <concepts>
#include <memory>
#include <string>

#include <rlalgo/inference/local_engine.hpp>

namespace rlalgo::assembly {

template <class F>
concept Form = requires(const F& form, std::shared_ptr<inference::LocalEngine> drawer, const std::string& address) {
  { F::exclusive } -> std::convertible_to<bool>;    // static, constexpr
  { F::asks_server } -> std::convertible_to<bool>;  // static, constexpr
  form.around(std::move(drawer), address);          // → a shared_ptr to an inference::Generator
};

// A single answer.
struct Plain {
  static constexpr bool exclusive = false, asks_server = false;
  template <class G>
  [[nodiscard]] std::shared_ptr<G> around(std::shared_ptr<G> drawer, const std::string& /*address*/) const {
    return drawer;
  }
};

static_assert(Form<Plain>);

}  // namespace rlalgo::assembly
