// Draws against the same arithmetic written one step after the other, and the generator against core/philox.hpp.
#include <algorithm>
#include <map>

#include <support/catch.hpp>
#include <support/kernels.hpp>

#include <rlalgo/core/philox.hpp>
#include <rlalgo/cuda/draw.cuh>

namespace {

using namespace rlalgo::support;
namespace cuda = rlalgo::cuda;

struct Drawn {
  std::vector<std::int32_t> tokens, ranks;
  std::vector<float> log_probs;
  std::vector<std::vector<cuda::DrawLikely>> likely;
};

// Row i of the logits is asked by ask i, unless the asks say otherwise.
Drawn drawn(const std::vector<float>& logits, std::int64_t vocabulary, std::vector<cuda::DrawAsk> asks,
            std::int64_t gap = 0, bool own_rows = true, const std::vector<std::int32_t>& ids = {}) {
  const std::int64_t rows = static_cast<std::int64_t>(logits.size()) / vocabulary, stride = vocabulary + gap;
  std::vector<float> apart(static_cast<std::size_t>(rows * stride), NAN);
  for (std::int64_t r = 0; r < rows; ++r)
    std::copy_n(logits.begin() + r * vocabulary, vocabulary, apart.begin() + r * stride);
  std::int64_t each = 0, edited = 0;
  for (std::size_t i = 0; i < asks.size(); ++i) {
    if (own_rows) asks[i].row = static_cast<std::int64_t>(i);
    each = std::max<std::int64_t>(each, asks[i].likely);
    edited = std::max<std::int64_t>(edited, asks[i].edited + 1);
  }
  const Memory<float> there(apart), copies(static_cast<std::size_t>(edited * vocabulary));
  const Memory<cuda::DrawAsk> asks_there(asks);
  const Memory<std::int32_t> ids_there(ids);
  const Memory<cuda::DrawAnswer> answers(asks.size());
  const Memory<cuda::DrawLikely> likely(asks.size() * static_cast<std::size_t>(each));
  must_work(cuda::draw({.logits = there.data(),
                        .asks = asks_there.data(),
                        .ids = ids_there.data(),
                        .edited = copies.data(),
                        .answers = answers.data(),
                        .likely = likely.data(),
                        .count = static_cast<std::int64_t>(asks.size()),
                        .vocabulary = vocabulary,
                        .stride = stride,
                        .likely_each = each},
                       nullptr));
  Drawn out;
  const auto all = likely.values();
  for (const cuda::DrawAnswer& one : answers.values()) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(out.tokens.size()) * each;
    out.tokens.push_back(one.token);
    out.ranks.push_back(one.rank);
    out.log_probs.push_back(one.log_prob);
    out.likely.emplace_back(begin, begin + one.likely);
  }
  return out;
}

// The smallest id whose cumulative probability, in float64, exceeds u; and how far u is from the borders of its interval.
struct Exact {
  std::int64_t id = 0;
  double log_prob = 0.0, margin = 0.0;
};
Exact exact(const float* logits, std::int64_t vocabulary, double scale, double u) {
  const double top = *std::max_element(logits, logits + vocabulary);
  double total = 0.0, before = 0.0;
  for (std::int64_t j = 0; j < vocabulary; ++j) total += std::exp((logits[j] - top) * scale);
  for (std::int64_t j = 0; j < vocabulary; ++j) {
    const double p = std::exp((logits[j] - top) * scale) / total;
    if (before + p > u) return {j, (logits[j] - top) * scale - std::log(total), std::min(u - before, before + p - u)};
    before += p;
  }
  return {vocabulary - 1, 0.0, 0.0};
}

}  // namespace

TEST_CASE("A token is the smallest id whose cumulative probability exceeds the uniform of its key") {
  for (const std::int64_t vocabulary : {1, 2, 7, 8, 511, 512, 513, 1500, 33000}) {
    const std::size_t rows = vocabulary > 10000 ? 3 : 8;
    const auto logits =
        normal<float>(rows * static_cast<std::size_t>(vocabulary), static_cast<unsigned>(vocabulary), 3.0);
    std::vector<cuda::DrawAsk> keys;
    for (std::size_t r = 0; r < rows; ++r)
      keys.push_back({.seed = 0x123456789ABCULL + r,
                      .step = r % 3 == 0 ? 1ULL << 40U : r,
                      .index = 7 * r,
                      .position = static_cast<std::uint32_t>(100 + r),
                      .scale = r % 2 == 0 ? 1.0F : 1.0F / 0.7F});
    Drawn found;
    in_orders([&] { found = drawn(logits, vocabulary, keys, 5); }, vocabulary == 1500 ? 3 : 1);
    for (std::size_t r = 0; r < rows; ++r) {
      const double u = rlalgo::core::uniform({keys[r].seed, rlalgo::core::Stream::sampling}, keys[r].step,
                                             keys[r].index << 32U | keys[r].position);
      const Exact want = exact(logits.data() + r * static_cast<std::size_t>(vocabulary), vocabulary, keys[r].scale, u);
      CAPTURE(vocabulary, r, u, want.margin);
      CHECK(found.tokens[r] == want.id);  // no key here lies within rounding of a border
      CHECK(std::abs(found.log_probs[r] - want.log_prob) < 1e-5 * (1.0 + std::abs(want.log_prob)));
      REQUIRE(want.margin > 1e-6);
    }
  }
}

TEST_CASE("Greedy rows take the largest logit, the smallest id among equals") {
  const std::int64_t vocabulary = 1100;
  auto logits = normal<float>(static_cast<std::size_t>(3 * vocabulary), 5);
  logits[700] = logits[1000] = 9.0F;
  logits[static_cast<std::size_t>(vocabulary)] = 8.0F;
  logits[static_cast<std::size_t>(3 * vocabulary - 1)] = 8.0F;
  const Drawn found = drawn(logits, vocabulary, {{.scale = 0.0F}, {.scale = INFINITY}, {.scale = 0.0F}});
  CHECK(found.tokens == std::vector<std::int32_t>{700, 0, 1099});
  for (std::size_t r = 0; r < 3; ++r) {
    const float* const row = logits.data() + r * static_cast<std::size_t>(vocabulary);
    double total = 0.0;
    for (std::int64_t j = 0; j < vocabulary; ++j) total += std::exp(row[j] - row[found.tokens[r]]);
    CHECK(found.log_probs[r] == Approx(-std::log(total)).margin(1e-6));  // of temperature 1
  }
}

TEST_CASE("Ids that cannot be drawn are not, and rows with a logit that is not finite say so") {
  const std::int64_t vocabulary = 1536;
  std::vector<float> logits(static_cast<std::size_t>(3 * vocabulary), -1000.0F);
  logits[600] = 0.0F;                                      // one possible id
  logits[static_cast<std::size_t>(vocabulary + 3)] = NAN;  //
  logits[static_cast<std::size_t>(2 * vocabulary + 9)] = -INFINITY;
  const Drawn found =
      drawn(logits, vocabulary, {{.seed = 1, .scale = 1.0F}, {.seed = 1, .scale = 1.0F}, {.seed = 2, .scale = 1.0F}});
  CHECK(found.tokens == std::vector<std::int32_t>{600, -1, -1});
  CHECK(found.log_probs[0] == 0.0F);
  for (std::uint64_t seed = 1; seed < 12; ++seed) {  // half of the mass at either end
    std::vector<float> two(static_cast<std::size_t>(vocabulary), -200.0F);
    two.front() = two.back() = 1.0F;
    const auto one = drawn(two, vocabulary, {{.seed = seed, .scale = 1.0F}}).tokens[0];
    CHECK((one == 0 || one == vocabulary - 1));
  }
}

TEST_CASE("Draws have the frequencies of the softmax") {
  const std::vector<float> row{0.0F, std::log(2.0F), std::log(5.0F)};
  std::vector<float> logits;
  std::vector<cuda::DrawAsk> keys;
  for (std::uint32_t i = 0; i < 200; ++i) {
    logits.insert(logits.end(), row.begin(), row.end());
    keys.push_back({.seed = 42, .step = 1, .index = i / 20, .position = i % 20, .scale = 1.0F});
  }
  std::map<int, int> counts;
  for (const int token : drawn(logits, 3, keys).tokens) ++counts[token];
  CHECK(std::abs(counts[0] - 25) < 19);  // four deviations
  CHECK(std::abs(counts[1] - 50) < 25);
  CHECK(std::abs(counts[2] - 125) < 28);
}

namespace {

// What top_k, top_p and min_p keep, in float64; by falling logit.
std::vector<std::int64_t> kept_of(const std::vector<float>& row, const cuda::DrawAsk& ask) {
  std::vector<std::int64_t> ids;
  for (std::size_t j = 0; j < row.size(); ++j) ids.push_back(static_cast<std::int64_t>(j));
  const auto logit = [&](std::int64_t id) { return row[static_cast<std::size_t>(id)]; };
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  const float top = logit(ids[0]);
  const auto weight = [&](std::int64_t id) { return std::exp(static_cast<double>((logit(id) - top) * ask.scale)); };
  if (ask.top_k > 0 && ask.top_k < static_cast<std::int32_t>(row.size())) {
    const float least = logit(ids[static_cast<std::size_t>(ask.top_k - 1)]);
    std::erase_if(ids, [&](auto id) { return logit(id) < least; });
  }
  double total = 0.0, before = 0.0;
  for (const auto id : ids) total += weight(id);
  std::size_t n = ids.size();
  if (ask.top_p < 1.0)
    for (n = 0; n < ids.size() && (n == 0 || before < ask.top_p * total);) before += weight(ids[n++]);
  while (n > 1 && weight(ids[n - 1]) < ask.min_p) --n;
  ids.resize(n);
  return ids;
}

}  // namespace

TEST_CASE("Truncated draws are of what top_k, top_p and min_p keep, by id") {
  for (const std::int64_t vocabulary : {1, 5, 40, 700, 5000}) {
    auto logits = normal<float>(static_cast<std::size_t>(vocabulary), static_cast<unsigned>(vocabulary) + 7, 3.0);
    if (vocabulary == 40) logits[3] = logits[9] = logits[21] = 2.5F, logits[11] = -0.0F, logits[12] = 0.0F;
    const auto n = static_cast<std::int32_t>(vocabulary);
    const std::vector<cuda::DrawAsk> kinds = {{.scale = 1.0F, .top_k = 1},
                                              {.scale = 0.5F, .top_k = 7},
                                              {.scale = 1.0F, .top_k = n},
                                              {.scale = 2.0F, .top_k = 30, .top_p = 0.8},
                                              {.scale = 1.0F, .top_p = 0.9},
                                              {.scale = 1.0F, .top_p = 1e-9},
                                              {.scale = 1.0F, .min_p = 0.1},
                                              {.scale = 1.3F, .top_p = 0.95, .min_p = 0.02},
                                              {.scale = 1.0F, .top_k = 20, .top_p = 0.9, .min_p = 0.05}};
    std::vector<cuda::DrawAsk> asks;
    for (const cuda::DrawAsk& kind : kinds)
      for (std::uint64_t i = 0; i < (vocabulary > 100 ? 2U : 5U); ++i) {
        asks.push_back(kind);
        asks.back().seed = 11 * i + 3;
        asks.back().index = i;
        asks.back().position = static_cast<std::uint32_t>(i);
        asks.back().likely = static_cast<std::int32_t>(2 * i);
      }
    const Drawn found = drawn(logits, vocabulary, asks, 0, false);
    for (std::size_t i = 0; i < asks.size(); ++i) {
      const cuda::DrawAsk& ask = asks[i];
      CAPTURE(vocabulary, i, ask.top_k, ask.top_p, ask.min_p);
      std::vector<std::int64_t> kept = kept_of(logits, ask);
      const bool whole = kept.size() == logits.size();
      const float top = *std::max_element(logits.begin(), logits.end());
      const auto exponent = [&](std::int64_t id) {
        return static_cast<double>((logits[static_cast<std::size_t>(id)] - top) * ask.scale);
      };
      double total = 0.0;
      for (const auto id : kept) total += std::exp(exponent(id));
      REQUIRE(found.likely[i].size() == std::min(kept.size(), static_cast<std::size_t>(ask.likely)));
      for (std::size_t k = 0; k < found.likely[i].size(); ++k) {
        CHECK(found.likely[i][k].id == kept[k]);
        CHECK(found.likely[i][k].log_prob == Approx(exponent(kept[k]) - std::log(total)).margin(2e-5));
      }
      std::sort(kept.begin(), kept.end());
      const double u =
          rlalgo::core::uniform({ask.seed, rlalgo::core::Stream::sampling}, ask.step, ask.index << 32U | ask.position);
      double before = 0.0;
      std::int64_t want = kept.back();
      for (const auto id : kept)
        if ((before += std::exp(exponent(id)) / total) > u) {
          want = id;
          break;
        }
      CHECK((found.tokens[i] == want || whole));  // of all ids: another test
      CHECK(found.log_probs[i] == Approx(exponent(found.tokens[i]) - std::log(total)).margin(2e-5));
    }
  }
}

TEST_CASE("Zeros of two signs are one number: the smaller id comes first") {
  const Drawn found = drawn(std::vector<float>{-3.0F, -0.0F, 0.0F, -5.0F}, 4, {{.scale = 1.0F, .likely = 2}}, 0, false);
  REQUIRE(found.likely[0].size() == 2);
  CHECK(found.likely[0][0].id == 1);
  CHECK(found.likely[0][1].id == 2);
}

TEST_CASE("More kept ids than a block holds are not known, and are said to be") {
  const std::int64_t vocabulary = 3 * cuda::draw_kept;
  const std::vector<float> flat(static_cast<std::size_t>(vocabulary), 0.5F);
  auto some = normal<float>(static_cast<std::size_t>(vocabulary), 4, 0.1);
  const Drawn found = drawn(flat, vocabulary,
                            {{.top_k = 5},                  // all are as large as the fifth
                             {.top_p = 0.9},                //
                             {.min_p = 0.5},                //
                             {.scale = 0.0F, .likely = 3},  // equal ones, again
                             {.top_p = 1e-5}},              // one suffices, but which is the first is not known
                            0, false);
  for (const std::int32_t token : found.tokens) CHECK(token == cuda::draw_not_known);
  some[17] = 20.0F;
  const Drawn known =
      drawn(some, vocabulary, {{.top_k = 2}, {.top_p = 0.9}, {.min_p = 0.5}, {.top_p = 0.999999999}, {.top_k = 4000}},
            0, false);
  CHECK(known.tokens[0] == 17);
  CHECK(known.tokens[1] == 17);
  CHECK(known.tokens[2] == 17);
  CHECK(known.tokens[3] == cuda::draw_not_known);  // its mass is spread over all
  CHECK(known.tokens[4] == cuda::draw_not_known);
}

TEST_CASE("Given ids have their log-prob and rank; penalties and forbidden ids change a copy of the row") {
  const std::vector<float> row{2.0F, -1.0F, 0.5F, 3.0F, 3.0F, -4.0F};
  const std::vector<std::int32_t> ids{0, 1, 3, 4};
  const auto log_prob = [](std::vector<double> l, std::size_t id) {
    double total = 0.0;
    for (const double x : l) total += std::exp(x);
    return l[id] - std::log(total);
  };
  const Drawn found =
      drawn(row, 6,
            {{.scale = 0.5F, .given = 2, .likely = 2},
             {.given = 3},
             {.scale = 0.0F, .penalty = 2.0F, .first_seen = 0, .seen = 3, .edited = 0},
             {.scale = 0.0F, .first_forbidden = 2, .forbidden = 2, .edited = 1},
             {.scale = 0.0F, .penalty = 2.0F, .first_seen = 2, .seen = 2, .edited = 2, .of_model = 1, .likely = 1},
             {.scale = 0.0F}},
            2, false, ids);
  CHECK(found.ranks[0] == 4);
  CHECK(found.tokens[0] == 2);
  CHECK(found.log_probs[0] == Approx(log_prob({1.0, -0.5, 0.25, 1.5, 1.5, -2.0}, 2)).margin(1e-6));
  REQUIRE(found.likely[0].size() == 2);
  CHECK((found.likely[0][0].id == 3 && found.likely[0][1].id == 4));
  CHECK((found.tokens[1] == 3 && found.ranks[1] == 1));
  CHECK(found.tokens[2] == 4);  // 1, −2, 0.5, 1.5, 3, −4
  CHECK(found.log_probs[2] == Approx(log_prob({1.0, -2.0, 0.5, 1.5, 3.0, -4.0}, 4)).margin(1e-6));
  CHECK(found.tokens[3] == 0);
  CHECK(found.log_probs[3] == Approx(log_prob({2.0, -1.0, 0.5, -1e30, -1e30, -4.0}, 0)).margin(1e-6));
  CHECK(found.tokens[4] == 0);  // drawn with the penalty, its log-prob without
  CHECK(found.log_probs[4] == Approx(log_prob({2.0, -1.0, 0.5, 3.0, 3.0, -4.0}, 0)).margin(1e-6));
  CHECK(found.likely[4][0].id == 3);
  CHECK(found.tokens[5] == 3);  // the row itself is as it was
}

TEST_CASE("A vocabulary that is too large for the kernel is an error of its launcher") {
  CHECK(cuda::draw({.count = 1, .vocabulary = cuda::draw_vocabulary + 1}, nullptr) == cudaErrorInvalidValue);
  CHECK(cuda::draw({.count = 1, .vocabulary = 0}, nullptr) == cudaErrorInvalidValue);
  CHECK(cuda::draw({.count = 0}, nullptr) == cudaSuccess);
}
