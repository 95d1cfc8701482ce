// Who draws completions, as a choice of assembly/completions.hpp: what it is opened with, and what it gives.
//
// A Drawer says whether its completions come from a server that others may ask, too (`serves`), and opens a generator with the sync
// policy that reaches it. Where the policy hangs on the run (the rank, an adapter), `open` calls `use` with one of several types:
// so what is put around it is erased once, at the end.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <stop_token>
#include <string>

#include <rlalgo/assembly/language_model.hpp>
#include <rlalgo/distributed/world.hpp>
#include <rlalgo/inference/weight_snapshots.hpp>
#include <rlalgo/sync/weight_gate.hpp>

namespace rlalgo::assembly {

// What a drawer is opened with.
struct Opening {
  const LanguageModel& model;
  std::shared_ptr<distributed::World> world = {};
  std::ostream& log;
  std::stop_token stop = {};  // ends its calls
};

template <class G, class Y>
struct Drawn {
  std::shared_ptr<G> generator = {};
  Y sync;
  std::shared_ptr<sync::WeightGate> gate = std::make_shared<sync::WeightGate>();
  std::function<std::uint64_t()> progress = {};  // a number that grows while it works; empty: that cannot be known
  std::function<std::int64_t()> hold = {};       // takes the weights of the next call, and says their version
  std::function<void()> moved = {};              // addresses of weights that it remembers have changed
  std::shared_ptr<inference::WeightSnapshots> snapshots = {};  // of a generator with copies
  std::string address = {};                                    // of a server in this process, on rank 0
};

template <class D>
concept Drawer = requires(const D& drawer, const Opening& opening) {
  { D::serves } -> std::convertible_to<bool>;  // static, constexpr
  drawer.template open<true>(opening, [](auto /*drawn*/) {});
  drawer.template open<false>(opening, [](auto /*drawn*/) {});
};

}  // namespace rlalgo::assembly
