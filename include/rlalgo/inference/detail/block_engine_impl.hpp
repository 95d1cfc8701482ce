// Definitions of block_engine.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rlalgo/core/compiled.hpp>
#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/block_engine.hpp>
#include <rlalgo/inference/detail/check_request.hpp>
#include <rlalgo/tensor/threads.hpp>

namespace rlalgo::inference {

RLALGO_INLINE BlockEngine::BlockEngine(const model::DecoderConfig& decoder, const model::DecoderWeights& weights,
                                       EngineConfig engine)
    : decoder_(decoder),
      weights_(weights),
      engine_(engine.for_weights(weights)),
      pool_(engine.threads > 0 ? engine.threads : tensor::available_threads()),
      device_(engine_device_for(decoder_, engine_, pool_, std::max(engine_.max_slots, engine_.prefill_rows))),
      cache_(device_->cache()),
      forward_(device_->forward()),
      draws_(static_cast<std::size_t>(pool_.threads())) {
  if (engine_.max_slots < 1 || engine_.max_slots > 4096 || engine_.prefill_rows < 1 || engine_.prefill_rows > 65'536)
    core::raise_usage("inference", 7,
                      {.what = "engine setting max_slots or prefill_rows is out of range",
                       .found = std::to_string(engine_.max_slots) + " and " + std::to_string(engine_.prefill_rows),
                       .expected = "1 to 4096, and 1 to 65536 or 0 (as the device asks for)"});
}

RLALGO_INLINE void BlockEngine::check(const BlockRequest& request, const SamplingConfig& sampling) const {
  inference::check(sampling);
  const auto size = static_cast<std::int64_t>(request.document.size());
  for (const data::TokenId id : request.document) detail::check_id(decoder_, id, "the document");
  for (std::size_t k = 0; k < request.starts.size(); ++k) {
    const std::int64_t start = request.starts[k];
    if (start < 1 || start > size || (k > 0 && start <= request.starts[k - 1]))
      core::raise("inference", 15,
                  {.what = "a block starts outside of its document, or before the block in front of it",
                   .found = std::to_string(start),
                   .expected = "rising starts from 1 to " + std::to_string(size)});
    if (start + request.length > decoder_.context_length())
      core::raise("inference", 1,
                  {.what = "a block ends beyond the positions of the model",
                   .found = std::to_string(start) + " and " + std::to_string(request.length) + " tokens",
                   .expected = "together at most " + decoder_.context_limit(),
                   .remedy = "shorten the document, or lower generate_max_len"});
  }
}

RLALGO_INLINE BlockSamples BlockEngine::generate(const BlockRequest& request, const SamplingConfig& sampling,
                                                 DrawKey key) {
  check(request, sampling);
  BlockSamples out(request.starts.size(), std::vector<std::vector<data::TokenId>>(
                                              static_cast<std::size_t>(std::max<std::int64_t>(request.count, 0))));
  if (request.starts.empty() || request.count < 1 || request.length < 1) return out;
  const Forward::WeightsHandle held = device_->view(weights_, nullptr, std::nullopt);
  const Forward::Weights& view = *held;
  forward_.reserve(request.starts.back() + request.length);

  const auto slots = static_cast<std::size_t>(engine_.max_slots);
  const std::size_t blocks = cache_.carried_bytes() == 0 ? out.size() : std::min(slots, out.size());  // at a time
  KvCache::Sequence document;
  std::vector<KvCache::Sequence> anchors(cache_.carried_bytes() == 0 ? 0 : blocks);
  const auto release = [&] {
    cache_.release(document);
    for (KvCache::Sequence& anchor : anchors) cache_.release(anchor);
  };
  try {
    for (std::size_t first = 0; first < out.size(); first += blocks) {
      const std::size_t end = std::min(first + blocks, out.size());
      prefill(view, request, sampling, key, first, end, document, anchors, out);
      std::vector<Place> places;
      for (std::size_t k = first; k < end && request.length > 1; ++k)
        for (std::size_t j = 0; j < out[k].size(); ++j) places.push_back({k, j});
      for (std::size_t i = 0; i < places.size(); i += slots)
        decode(view, request, sampling, key, document, anchors,
               std::span(places).subspan(i, std::min(slots, places.size() - i)), out);
    }
  } catch (...) {
    release();
    throw;
  }
  release();
  return out;
}

RLALGO_INLINE void BlockEngine::run(const Forward::Weights& weights, const std::vector<Row>& rows) {
  forward_.run(weights, rows);
  counts_.forward_rows += static_cast<std::int64_t>(rows.size());
}

RLALGO_INLINE void BlockEngine::prefill(const Forward::Weights& weights, const BlockRequest& request,
                                        const SamplingConfig& sampling, DrawKey key, std::size_t first,
                                        std::size_t last, KvCache::Sequence& document,
                                        std::span<KvCache::Sequence> anchors, BlockSamples& out) {
  const std::int64_t length = request.starts[last - 1], known = document.length;
  cache_.extend(document, length - known);
  std::vector<Row> rows;
  std::size_t block = first;  // the first that has no token yet
  for (std::int64_t begin = known; begin < length; begin += engine_.prefill_rows) {
    const std::int64_t end = std::min(begin + engine_.prefill_rows, length);
    rows.clear();
    for (std::int64_t i = begin; i < end; ++i)
      rows.push_back({request.document[static_cast<std::size_t>(i)], i, document.pages.data(), document.state});
    for (std::size_t k = block; !anchors.empty() && k < last && request.starts[k] <= end; ++k) {
      cache_.claim_state(anchors[k - first]);
      rows[static_cast<std::size_t>(request.starts[k] - 1 - begin)].saved = anchors[k - first].state;
    }
    run(weights, rows);
    for (; block < last && request.starts[block] <= end; ++block) {
      const std::vector<std::int64_t> row(1, request.starts[block] - 1 - begin);
      std::vector<Place> places;
      for (std::size_t j = 0; j < out[block].size(); ++j) places.push_back({block, j});
      draw(weights, request, sampling, key, row, places, out);
    }
  }
}

RLALGO_INLINE void BlockEngine::decode(const Forward::Weights& weights, const BlockRequest& request,
                                       const SamplingConfig& sampling, DrawKey key, const KvCache::Sequence& document,
                                       std::span<const KvCache::Sequence> anchors, std::span<const Place> places,
                                       BlockSamples& out) {
  std::vector<KvCache::Sequence> sequences(places.size());
  const auto release = [&] {
    for (KvCache::Sequence& sequence : sequences) cache_.release(sequence);
  };
  try {
    for (std::size_t i = 0; i < places.size(); ++i) {
      KvCache::Sequence prefix;  // the document up to the block, as a name of its pages: it holds none of them
      prefix.length = request.starts[places[i].block];
      if (!anchors.empty()) prefix.state = anchors[places[i].block % anchors.size()].state;
      const auto pages = static_cast<std::ptrdiff_t>(KvCache::pages_for(prefix.length));
      prefix.pages.assign(document.pages.begin(), document.pages.begin() + pages);
      prefix.ids.assign(document.ids.begin(), document.ids.begin() + pages);
      cache_.fork(prefix, sequences[i]);
    }
    std::vector<Row> rows(places.size());
    std::vector<std::int64_t> numbers(places.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int64_t>(i);
    for (std::int64_t t = 0; t + 1 < request.length; ++t) {
      for (std::size_t i = 0; i < places.size(); ++i) {
        const std::int64_t position = sequences[i].length;
        cache_.extend(sequences[i], 1);
        rows[i] = {out[places[i].block][places[i].sample].back(), position, sequences[i].pages.data(),
                   sequences[i].state};
      }
      run(weights, rows);
      draw(weights, request, sampling, key, numbers, places, out);
    }
  } catch (...) {
    release();
    throw;
  }
  release();
}

RLALGO_INLINE void BlockEngine::draw(const Forward::Weights& weights, const BlockRequest& request,
                                     const SamplingConfig& sampling, DrawKey key, std::span<const std::int64_t> rows,
                                     std::span<const Place> places, BlockSamples& out) {
  const float* const logits = forward_.logits(weights, rows);
  counts_.head_rows += static_cast<std::int64_t>(rows.size());
  const auto vocabulary = static_cast<std::size_t>(decoder_.vocab_size);
  const auto task = [&](std::uint32_t i, int thread) {
    const Place& place = places[i];
    std::vector<data::TokenId>& sample = out[place.block][place.sample];
    const std::uint64_t index =
        request.first_index + place.block * static_cast<std::uint64_t>(request.count) + place.sample;
    const double u = draw_uniform(key, index, static_cast<std::uint32_t>(sample.size()));
    const std::size_t row = rows.size() == 1 ? 0 : i;
    sample.push_back(
        draws_[static_cast<std::size_t>(thread)]({logits + row * vocabulary, vocabulary}, sampling, {}, {}, u).id);
  };
  pool_.run(static_cast<std::uint32_t>(places.size()), task);
}

}  // namespace rlalgo::inference
