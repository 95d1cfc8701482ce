// A fair queue: clients are served one after the other (round robin), and the pieces of work of a client in their order.
//
//   push("a", 1) push("a", 2) push("b", 3)      pop() → 1, 3, 2
//
// So a client with a thousand requests holds up nobody but itself. A piece that is pushed again goes to the end of its
// client's own.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <utility>

namespace rlalgo::serve {

class FairQueue {
 public:
  void push(const std::string& client, std::uint64_t piece) {
    std::deque<std::uint64_t>& own = pieces_[client];
    if (own.empty()) clients_.push_back(client);
    own.push_back(piece);
  }
  // Not of empty ones.
  std::uint64_t pop() {
    std::string client = std::move(clients_.front());
    clients_.pop_front();
    const auto at = pieces_.find(client);
    const std::uint64_t out = at->second.front();
    at->second.pop_front();
    if (at->second.empty())
      pieces_.erase(at);
    else
      clients_.push_back(std::move(client));
    return out;
  }
  [[nodiscard]] bool empty() const noexcept { return clients_.empty(); }

 private:
  std::deque<std::string> clients_;  // that have a piece, next one first
  std::unordered_map<std::string, std::deque<std::uint64_t>> pieces_;
};

}  // namespace rlalgo::serve
