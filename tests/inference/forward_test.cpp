#include <support/catch.hpp>

#include <algorithm>
#include <vector>

#include <rlalgo/inference/cache_element.hpp>
#include <rlalgo/inference/detail/decoder_forward.hpp>
#include <rlalgo/inference/forward.hpp>
#include <rlalgo/os/thread_pool.hpp>

#include "inference/reference.hpp"

using namespace rlalgo;
using inference::Row;

TEST_CASE("a row's logits depend on its own sequence alone: not on the pass, the other rows or the pages") {
  for (const auto element : {inference::CacheElement::float32, inference::CacheElement::bfloat16}) {
    if (element == inference::CacheElement::bfloat16 && !inference::attends_to_bfloat16()) continue;
    const model::DecoderConfig config = reference::tiny("qwen2");
    const model::DecoderWeights tensors = reference::random_weights(config, 3);
    inference::detail::DecoderWeightsView weights;
    weights.view = inference::detail::DecoderViewer(config, tensors).view();
    inference::KvCache cache(config.layers, config.kv_heads, config.head_dim, element);
    os::ThreadPool pool(1);
    inference::detail::DecoderForward decoder(config, cache, pool, 64, 3);
    inference::Forward& forward = decoder;
    CHECK(forward.max_rows() == 64);
    CHECK(forward.max_logits() == 3);
    forward.reserve(100);
    const auto row = [](const inference::KvCache::Sequence& s, std::int64_t p, data::TokenId salt) {
      return Row{static_cast<data::TokenId>((p * 7 + salt) % 101), p, s.pages.data()};
    };
    // 40 tokens in one pass.
    inference::KvCache::Sequence whole;
    cache.extend(whole, 40);
    std::vector<Row> rows;
    for (std::int64_t p = 0; p < 40; ++p) rows.push_back(row(whole, p, 1));
    forward.run(weights, rows);
    const std::vector<std::int64_t> wanted = {39, 11};
    const float* logits = forward.logits(weights, wanted);
    const std::vector<float> last(logits, logits + 101), eleventh(logits + 101, logits + 202);
    const at::Tensor by_the_book = [&] {
      std::vector<data::TokenId> ids;
      for (const Row& one : rows) ids.push_back(one.token);
      return reference::logits(config, tensors, ids)[39];
    }();
    const double tolerance = element == inference::CacheElement::float32 ? 1e-3 : 0.1;
    for (std::int64_t v = 0; v < 101; ++v)
      CHECK(last[static_cast<std::size_t>(v)] == Approx(by_the_book[v].item<double>()).margin(tolerance));
    // The same one by one, on other pages, beside a sequence of other tokens.
    inference::KvCache::Sequence other, again;
    cache.extend(other, 40);
    cache.extend(again, 40);
    for (std::int64_t p = 0; p < 40; ++p) {
      forward.run(weights, std::vector<Row>{row(other, p, 50), row(again, p, 1)});
      if (p != 11 && p != 39) continue;
      const float* const found = forward.logits(weights, std::vector<std::int64_t>{1});
      CHECK(std::equal(found, found + 101, (p == 11 ? eleventh : last).begin()));
    }
  }
}

TEST_CASE("rows divided among threads have the bits of rows that all threads share") {
  const model::DecoderConfig config = reference::tiny("qwen2");
  const model::DecoderWeights tensors = reference::random_weights(config, 3);
  inference::detail::DecoderWeightsView weights;
  weights.view = inference::detail::DecoderViewer(config, tensors).view();
  constexpr std::int64_t sequences = 192, words = 101;
  std::vector<std::vector<float>> found;
  for (const int threads : {1, 2, 3}) {
    inference::KvCache cache(config.layers, config.kv_heads, config.head_dim, inference::CacheElement::float32);
    os::ThreadPool pool(threads);
    inference::detail::DecoderForward forward(config, cache, pool, sequences, sequences);
    forward.reserve(64);
    std::vector<inference::KvCache::Sequence> of(sequences);
    for (inference::KvCache::Sequence& sequence : of) cache.extend(sequence, 40);
    std::vector<float> logits;
    const auto pass = [&](const std::vector<Row>& rows) {
      forward.run(weights, rows);
      std::vector<std::int64_t> wanted;
      for (std::size_t i = 0; i < rows.size(); ++i) wanted.push_back(static_cast<std::int64_t>(i));
      const float* const some = forward.logits(weights, wanted);
      logits.insert(logits.end(), some, some + static_cast<std::int64_t>(rows.size()) * words);
    };
    // Rows of six sequences, 32 each, which read what another thread stored; then one of each sequence.
    std::vector<Row> rows;
    for (std::size_t s = 0; s < 6; ++s)
      for (std::int64_t p = 0; p < 32; ++p) rows.push_back({static_cast<data::TokenId>(p + 3), p, of[s].pages.data()});
    pass(rows);
    rows.clear();
    for (std::size_t s = 0; s < sequences; ++s)
      rows.push_back({static_cast<data::TokenId>(s % words), s < 6 ? 32 : 0, of[s].pages.data()});
    pass(rows);
    found.push_back(logits);
  }
  CHECK(found[0] == found[1]);
  CHECK(found[0] == found[2]);
}
