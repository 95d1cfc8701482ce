// A forward pass whose logits are a hash of the tokens that it finds in the pages of a sequence: any row that reads a
// page of somebody else, or one that was not filled, gives other tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <vector>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/cpu/kernels.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/inference/kv_cache.hpp>
#include <rlalgo/model/decoder_config.hpp>

namespace toy {

using namespace rlalgo;

struct ToyWeights final : inference::Forward::Weights {
  std::uint64_t seed = 1;
};

inline inference::Forward::WeightsHandle weights(std::uint64_t seed, std::int64_t version = -1) {
  auto out = std::make_shared<ToyWeights>();
  out->seed = out->contents = seed;
  out->version = version;
  return out;
}

inline model::DecoderConfig config() {
  model::DecoderConfig c;
  c.vocab_size = 50;
  c.layers = c.heads = c.kv_heads = 1;
  c.head_dim = 8;
  c.max_position_embeddings = 400;
  return c;
}

class ToyForward : public inference::Forward {
 public:
  ToyForward(const inference::KvCache& cache, std::int64_t max_rows, std::int64_t max_logits)
      : cache_(cache), max_rows_(max_rows), max_logits_(max_logits) {}

  [[nodiscard]] std::int64_t max_rows() const override { return max_rows_; }
  [[nodiscard]] std::int64_t max_logits() const override { return max_logits_; }
  void reserve(std::int64_t) override {}
  [[nodiscard]] bool overlaps() const override { return apart; }

  void run(const Weights& weights, std::span<const inference::Row> rows) override {
    const std::uint64_t seed = static_cast<const ToyWeights&>(weights).seed;
    compute(rows, [seed](const inference::Row&) { return seed; });
  }

  // Of several weights in one pass.
  template <class Seed>
  void compute(std::span<const inference::Row> rows, const Seed& seed_of) {
    if (static_cast<std::int64_t>(rows.size()) > max_rows_) throw std::logic_error("too many rows");
    hashes_.clear();
    ++passes;
    computed += rows.size();
    rows_.assign(rows.begin(), rows.end());
    if (fails == Fails::in_run) fail();
    if (most_rows > 0 && rows.size() > most_rows) {
      for (const inference::Row& row : rows_) *at(row, row.position) = 77.0F;
      throw std::bad_alloc();
    }
    for (const inference::Row& row : rows)
      *at(row, row.position) = static_cast<float>(static_cast<std::uint64_t>(row.token) + 100 * seed_of(row));
    for (const inference::Row& row : rows) {
      std::uint64_t hash = seed_of(row);
      for (std::int64_t p = 0; p <= row.position; ++p) {
        const auto found = static_cast<std::uint64_t>(*at(row, p));
        hash = (hash ^ found) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 29U;
      }
      hashes_.push_back(hash);
    }
  }

  const float* logits(const Weights&, std::span<const std::int64_t> rows) override {
    if (static_cast<std::int64_t>(rows.size()) > max_logits_) throw std::logic_error("too many logits");
    if (fails == Fails::in_logits) fail();
    const std::int64_t vocab = config().vocab_size;
    logits_.clear();
    for (const std::int64_t row : rows)
      for (std::int64_t v = 0; v < vocab; ++v)
        logits_.push_back(
            static_cast<float>(6.0 * core::uniform({hashes_[static_cast<std::size_t>(row)], core::Stream::test}, 0,
                                                   static_cast<std::uint64_t>(v))));
    return logits_.data();
  }

  enum class Fails { never, in_run, in_logits } fails = Fails::never;
  bool apart = false;         // as a device that computes while the host does something else
  std::size_t most_rows = 0;  // that there is memory for; 0: any number
  std::uint64_t passes = 0;
  std::size_t computed = 0;  // rows

 private:
  // In the place of what it should have written there is rubbish.
  [[noreturn]] void fail() {
    for (const inference::Row& row : rows_) *at(row, row.position) = 77.0F;
    throw std::runtime_error("the device failed");
  }

  float* at(const inference::Row& row, std::int64_t position) const {
    std::byte* const page = row.pages[position / cpu::page_positions];
    return reinterpret_cast<float*>(page + cache_.key_offset(0, 0)) + position % cpu::page_positions;
  }

  const inference::KvCache& cache_;
  std::int64_t max_rows_, max_logits_;
  std::vector<inference::Row> rows_;
  std::vector<std::uint64_t> hashes_;
  std::vector<float> logits_;
};

}  // namespace toy
