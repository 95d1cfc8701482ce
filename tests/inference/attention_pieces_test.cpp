#include <rlalgo/inference/attention_pieces.hpp>

#include <cstdint>
#include <vector>

#include <ATen/ATen.h>

#include <rlalgo/inference/detail/paged_operations.hpp>
#include <rlalgo/inference/detail/paged_rows.hpp>
#include <rlalgo/inference/detail/tensor_pages.hpp>
#include <rlalgo/inference/kv_cache.hpp>

#include <support/catch.hpp>

using namespace rlalgo;
using inference::AttentionPieces;
using inference::Row;
namespace parts = rlalgo::inference::detail;

namespace {

model::DecoderConfig config(bool sinks) {
  model::DecoderConfig out;
  out.layers = 1;
  out.heads = 4;
  out.kv_heads = 2;
  out.head_dim = 8;
  out.hidden_size = 32;
  out.specs = {model::LayerSpec{.sinks = sinks, .window = 30}};
  return out;
}

// Attention of a pass: five sequences that decode, and two prompts of 40 and 3 rows, the first from its position 50 on.
struct Pass {
  model::DecoderConfig decoder;
  parts::TensorPages pages{at::kCPU, at::kFloat};
  inference::KvCache cache;
  std::vector<inference::KvCache::Sequence> sequences;
  std::vector<Row> rows;
  at::Tensor q, k, v;

  explicit Pass(bool sinks) : decoder(config(sinks)), cache(decoder, inference::CacheElement::float32, pages, pages) {
    at::manual_seed(3);
    const std::vector<std::pair<std::int64_t, std::int64_t>> spans = {{7, 8},   {70, 71}, {31, 32}, {50, 90},
                                                                      {64, 65}, {0, 3},   {1, 2}};
    sequences.resize(spans.size());
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const auto [begin, end] = spans[i];
      inference::KvCache::reserve(sequences[i], end);
      REQUIRE(cache.extend(sequences[i], end));
      for (std::int64_t p = begin; p < end; ++p) rows.push_back({1, p, sequences[i].pages.data()});
    }
    pages.arena().copy_(at::randn(pages.arena().sizes()));
    const auto count = static_cast<std::int64_t>(rows.size());
    q = at::randn({count, 4, 8}), k = at::randn({count, 2, 8}), v = at::randn({count, 2, 8});
  }

  model::AttentionOutput attend(AttentionPieces pieces, parts::RowRuns kind = parts::RowRuns::sequences) {
    parts::PagedOperations operations(decoder, pages, {.table = nullptr, .varlen = nullptr}, pieces);
    parts::RowLayout layout;
    const parts::PagedRows paged = layout(rows, at::kCPU, kind, static_cast<std::int64_t>(rows.size()) + 5);
    operations.begin(paged);
    operations.enter_layer(0);
    const auto padded = [](const at::Tensor& x) { return at::cat({x, at::randn({5, x.size(1), x.size(2)})}); };
    const model::AttentionLayout none;
    const model::AttentionOutput out = operations.attention(padded(q), padded(k), padded(v), none);
    REQUIRE(out.value.size(0) == q.size(0) + 5);
    CHECK(out.value.narrow(0, q.size(0), 5).eq(0).all().item<bool>());  // of rows that no sequence has
    return {out.value.narrow(0, 0, q.size(0)),
            out.log_sum.defined() ? out.log_sum.narrow(0, 0, q.size(0)) : at::Tensor()};
  }
};

}  // namespace

TEST_CASE("attention in pieces, or row by row, is attention over all at once") {
  for (const bool sinks : {false, true}) {
    Pass pass(sinks);
    const model::AttentionOutput whole = pass.attend({});
    for (const AttentionPieces& pieces :
         {AttentionPieces{.gathered = 1}, AttentionPieces{.scores = 1}, AttentionPieces{.scores = 7 * 4 * 96},
          AttentionPieces{.gathered = 2 * 96 * 2 * 8 * 2, .scores = 3 * 4 * 96}}) {
      const model::AttentionOutput some = pass.attend(pieces);
      CHECK(at::allclose(whole.value, some.value, 1e-5, 1e-6));
      CHECK(whole.log_sum.defined() == sinks);
      if (sinks) CHECK(at::allclose(whole.log_sum, some.log_sum, 1e-5, 1e-6));
    }
    for (const parts::RowRuns kind : {parts::RowRuns::rows, parts::RowRuns::rows_apart})
      CHECK(at::allclose(whole.value, pass.attend({}, kind).value, 1e-5, 1e-6));
  }
}

TEST_CASE("row by row, a row's bits are those of its own sequence") {
  Pass pass(false);
  const at::Tensor all = pass.attend({}, parts::RowRuns::rows_apart).value;
  const std::vector<Row> rows = pass.rows;
  const at::Tensor q = pass.q, k = pass.k, v = pass.v;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(rows.size()); i += 6) {
    pass.rows = {rows[static_cast<std::size_t>(i)]};
    pass.q = q.narrow(0, i, 1), pass.k = k.narrow(0, i, 1), pass.v = v.narrow(0, i, 1);
    CHECK(pass.attend({}, parts::RowRuns::rows_apart).value.equal(all.narrow(0, i, 1)));
  }
}
