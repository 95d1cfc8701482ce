// Byte-pair encoding of one pre-token.
//
//   start from single symbols; repeatedly merge the adjacent pair of lowest rank, the leftmost on ties
//
// Source: Sennrich, Haddow, Birch 2016 (arXiv 1508.07909), algorithm 1, with ranks read from tokenizer.json.
// Symbols are bytes (byte-level models) or Unicode scalars. Short pre-tokens merge by a scan over an array, long ones
// by a heap of candidate merges, O(n log n). A pre-token that is itself a token and encodes to it is found by one
// lookup; which tokens have this property is worked out when first asked and remembered in an atomic byte per id.
// encode() is const and safe to call from many threads at once.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rlalgo/text/detail/string_table.hpp>
#include <rlalgo/text/detail/unicode.hpp>

namespace rlalgo::text::detail {

struct BpeOptions {
  bool byte_symbols = true;    // symbols are bytes; else Unicode scalars
  bool ignore_merges = false;  // a pre-token found in the vocabulary is not split at all
  bool byte_fallback = false;  // an unknown scalar becomes its bytes' <0xHH> tokens
  bool fuse_unknown = false;   // consecutive unknown symbols become one
  std::int32_t unknown = -1;   // id of the unknown token; -1 = unknown symbols are dropped
};

class Bpe {
 public:
  using Id = std::int32_t;
  static constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

  Bpe() = default;
  // vocabulary: symbol strings (bytes for byte-level models) → id; id_limit: one above the highest id.
  Bpe(StringTable vocabulary, std::size_t merges, std::size_t id_limit, BpeOptions options)
      : vocabulary_(std::move(vocabulary)), options_(options) {
    pairs_.resize(std::bit_ceil(merges * 2 + 16));
    id_limit_ = id_limit;
    whole_ = std::make_unique<std::atomic<std::uint8_t>[]>(id_limit);
    for (unsigned b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      byte_ids_[b] = options_.byte_symbols ? vocabulary_.find({&byte, 1}) : vocabulary_.find(byte_token(b));
    }
  }

  // A pair listed twice has the later rank.
  void add_merge(Id left, Id right, Id merged, std::uint32_t rank) {
    Pair& pair = pairs_[pair_position(left, right)];
    pair = {key(left, right), rank, merged};
  }

  [[nodiscard]] Id find(std::string_view symbols) const noexcept { return vocabulary_.find(symbols); }

  void encode(std::string_view piece, std::vector<Id>& out) const {
    const Id id = vocabulary_.find(piece);
    if (id >= 0) {
      if (options_.ignore_merges) {
        out.push_back(id);
        return;
      }
      const std::uint8_t known = whole_[static_cast<std::size_t>(id)].load(std::memory_order_relaxed);
      if (known == is_whole) {
        out.push_back(id);
        return;
      }
      if (known == not_known) {
        const std::size_t before = out.size();
        merge(piece, out);
        const bool whole = out.size() == before + 1 && out.back() == id;
        whole_[static_cast<std::size_t>(id)].store(whole ? is_whole : not_whole, std::memory_order_relaxed);
        return;
      }
    }
    merge(piece, out);
  }

  // Without the whole-token lookup; by_heap forces the algorithm of long pre-tokens.
  void merge(std::string_view piece, std::vector<Id>& out, bool by_heap = false) const {
    if (piece.size() <= short_limit && !by_heap) {
      std::array<Id, short_limit> symbols;
      std::size_t count = 0;
      initial_symbols(piece, [&](Id id) { symbols[count++] = id; });
      merge_short(symbols, count, out);
    } else {
      std::vector<Id> symbols;
      symbols.reserve(piece.size());
      initial_symbols(piece, [&](Id id) { symbols.push_back(id); });
      merge_long(symbols, out);
    }
  }

  static std::string byte_token(unsigned byte) {
    constexpr std::string_view digits = "0123456789ABCDEF";
    return {'<', '0', 'x', digits[byte >> 4U & 15U], digits[byte & 15U], '>'};
  }

 private:
  static constexpr std::size_t short_limit = 64;
  static constexpr std::uint64_t free_key = ~0ULL;
  static constexpr std::uint8_t not_known = 0, is_whole = 1, not_whole = 2;

  struct Pair {
    std::uint64_t key = free_key;
    std::uint32_t rank = no_rank;
    Id merged = -1;
  };

  static std::uint64_t key(Id left, Id right) noexcept {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U | static_cast<std::uint32_t>(right);
  }
  [[nodiscard]] std::size_t pair_position(Id left, Id right) const noexcept {
    const std::uint64_t wanted = key(left, right);
    const std::size_t mask = pairs_.size() - 1;
    for (std::size_t i = mix64(wanted ^ 0x9E3779B97F4A7C15ULL, 0xE7037ED1A0B428DBULL) & mask;; i = (i + 1) & mask) {
      if (pairs_[i].key == wanted || pairs_[i].key == free_key) return i;
    }
  }
  [[nodiscard]] const Pair& pair(Id left, Id right) const noexcept { return pairs_[pair_position(left, right)]; }

  template <class Emit>
  void initial_symbols(std::string_view piece, Emit emit) const {
    bool pending = false;  // an unknown token not yet emitted
    const auto known = [&](Id id) {
      if (pending) emit(options_.unknown);
      pending = false;
      emit(id);
    };
    const auto unknown = [&] {
      if (options_.unknown < 0) return;
      if (pending && !options_.fuse_unknown) emit(options_.unknown);
      pending = true;
    };
    if (options_.byte_symbols) {
      for (const char b : piece) {
        const Id id = byte_ids_[static_cast<std::uint8_t>(b)];
        id >= 0 ? known(id) : unknown();
      }
    } else {
      for (std::size_t i = 0; i < piece.size();) {
        const std::string_view scalar = piece.substr(i, scalar_at(piece, i).length);
        i += scalar.size();
        const Id id = vocabulary_.find(scalar);
        if (id >= 0) {
          known(id);
        } else if (options_.byte_fallback && has_bytes(scalar)) {
          // A pending unknown token stays pending, as in the tokenizers library.
          for (const char b : scalar) emit(byte_ids_[static_cast<std::uint8_t>(b)]);
        } else {
          unknown();
        }
      }
    }
    if (pending) emit(options_.unknown);
  }
  [[nodiscard]] bool has_bytes(std::string_view scalar) const noexcept {
    for (const char b : scalar) {
      if (byte_ids_[static_cast<std::uint8_t>(b)] < 0) return false;
    }
    return true;
  }

  void merge_short(std::array<Id, short_limit>& symbols, std::size_t count, std::vector<Id>& out) const {
    std::array<std::uint32_t, short_limit> rank;  // of the pair (i, i + 1)
    std::array<Id, short_limit> merged;
    const auto look_up = [&](std::size_t i) {
      const Pair& found = pair(symbols[i], symbols[i + 1]);
      rank[i] = found.rank;
      merged[i] = found.merged;
    };
    for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
    while (count > 1) {
      std::size_t best = 0;
      for (std::size_t i = 1; i + 1 < count; ++i) best = rank[i] < rank[best] ? i : best;
      if (rank[best] == no_rank) break;
      symbols[best] = merged[best];
      for (std::size_t i = best + 1; i + 1 < count; ++i) {
        symbols[i] = symbols[i + 1];
        rank[i] = rank[i + 1];
        merged[i] = merged[i + 1];
      }
      --count;
      if (best > 0) look_up(best - 1);
      if (best + 1 < count) look_up(best);
    }
    out.insert(out.end(), symbols.begin(), symbols.begin() + static_cast<std::ptrdiff_t>(count));
  }

  void merge_long(const std::vector<Id>& symbols, std::vector<Id>& out) const {
    struct Node {
      Id id;
      std::int32_t previous, next;  // -1 = none
      bool alive;
    };
    struct Candidate {
      std::uint32_t rank;
      std::int32_t left;
      Id left_id, right_id, merged;
      bool operator>(const Candidate& other) const noexcept {
        return rank != other.rank ? rank > other.rank : left > other.left;
      }
    };
    const auto count = static_cast<std::int32_t>(symbols.size());
    std::vector<Node> nodes(symbols.size());
    for (std::int32_t i = 0; i < count; ++i) {
      nodes[static_cast<std::size_t>(i)] = {symbols[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1,
                                            true};
    }
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
    const auto offer = [&](std::int32_t left) {
      const std::int32_t right = left < 0 ? -1 : nodes[static_cast<std::size_t>(left)].next;
      if (right < 0) return;
      const Id a = nodes[static_cast<std::size_t>(left)].id;
      const Id b = nodes[static_cast<std::size_t>(right)].id;
      const Pair& found = pair(a, b);
      if (found.rank != no_rank) queue.push({found.rank, left, a, b, found.merged});
    };
    for (std::int32_t i = 0; i + 1 < count; ++i) offer(i);
    while (!queue.empty()) {
      const Candidate top = queue.top();
      queue.pop();
      Node& left = nodes[static_cast<std::size_t>(top.left)];
      if (!left.alive || left.id != top.left_id || left.next < 0) continue;
      Node& right = nodes[static_cast<std::size_t>(left.next)];
      if (right.id != top.right_id) continue;
      left.id = top.merged;
      right.alive = false;
      left.next = right.next;
      if (right.next >= 0) nodes[static_cast<std::size_t>(right.next)].previous = top.left;
      offer(left.previous);
      offer(top.left);
    }
    for (std::int32_t i = count > 0 ? 0 : -1; i >= 0; i = nodes[static_cast<std::size_t>(i)].next) {
      out.push_back(nodes[static_cast<std::size_t>(i)].id);
    }
  }

  StringTable vocabulary_;
  std::vector<Pair> pairs_;
  std::array<Id, 256> byte_ids_{};
  BpeOptions options_;
  std::size_t id_limit_ = 0;
  std::unique_ptr<std::atomic<std::uint8_t>[]> whole_;
};

}  // namespace rlalgo::text::detail
