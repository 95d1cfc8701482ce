// Completions of several messages of the model, which environments answer (inference/multi_turn.hpp).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/assembly/form.hpp>
#include <rlalgo/environment/concept.hpp>
#include <rlalgo/inference/multi_turn.hpp>

namespace rlalgo::assembly {

struct Turns {
  static constexpr bool exclusive = true, asks_server = false;
  std::shared_ptr<environment::Environments> environments = {};
  std::vector<inference::Dialogue> dialogues = {};  // rows name theirs; assembly/dialogue.hpp makes them
  inference::MultiTurnConfig config = {};

  template <class G>
  [[nodiscard]] std::shared_ptr<inference::MultiTurn<G>> around(std::shared_ptr<G> drawer,
                                                                const std::string& /*address*/) const {
    struct Held {
      std::shared_ptr<G> drawer;
      inference::MultiTurn<G> turns;
    };
    G& under = *drawer;
    const auto held = std::make_shared<Held>(
        Held{std::move(drawer), inference::MultiTurn<G>(under, environments, dialogues, config)});
    return {held, &held->turns};
  }
};

static_assert(Form<Turns>);

}  // namespace rlalgo::assembly
