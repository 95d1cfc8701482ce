// Completions that agents of a Gym make, who ask the server that the weights go to (remote/gym_agents.hpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <rlalgo/assembly/form.hpp>
#include <rlalgo/remote/gym_agents.hpp>

namespace rlalgo::assembly {

struct Agents {
  static constexpr bool exclusive = false, asks_server = true;
  // Called when the server listens; `address`: of one in this process, else empty.
  std::function<std::shared_ptr<remote::GymAgents>(const std::string& address)> begin = {};

  template <class G>
  [[nodiscard]] std::shared_ptr<remote::GymAgents> around(std::shared_ptr<G> drawer, const std::string& address) const {
    struct Held {
      std::shared_ptr<G> drawer;
      std::shared_ptr<remote::GymAgents> agents;
    };
    const auto held = std::make_shared<Held>(Held{std::move(drawer), begin(address)});
    return {held, held->agents.get()};
  }
};

static_assert(Form<Agents>);

}  // namespace rlalgo::assembly
