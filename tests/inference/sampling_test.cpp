#include <support/catch.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/inference/sampling.hpp>

using namespace rlalgo;
using data::TokenId;
using inference::Drawn;
using inference::SamplingConfig;
using inference::TokenDraw;

namespace {

constexpr auto sampling_stream = core::Stream::test;

std::vector<float> random_logits(std::size_t n, std::uint64_t salt, double spread) {
  std::vector<float> out;
  for (std::size_t i = 0; i < n; ++i) {
    // A sum of uniforms is close enough to a normal distribution.
    double sum = 0;
    for (std::uint64_t k = 0; k < 6; ++k) sum += core::uniform({salt, sampling_stream}, k, i);
    out.push_back(static_cast<float>((sum - 3.0) * spread));
  }
  return out;
}

// The distribution that the header defines, step by step in f64 over the whole vocabulary (transformers' processors).
std::vector<double> reference_distribution(std::vector<double> l, const SamplingConfig& s,
                                           const std::vector<TokenId>& seen) {
  for (const TokenId id : std::set<TokenId>(seen.begin(), seen.end())) {
    double& v = l[static_cast<std::size_t>(id)];
    v = v > 0 ? v / s.repetition_penalty : v * s.repetition_penalty;
  }
  const double minus = -std::numeric_limits<double>::infinity();
  const auto softmax = [](const std::vector<double>& x) {
    const double top = *std::max_element(x.begin(), x.end());
    std::vector<double> p;
    for (const double v : x) p.push_back(std::exp(v - top));
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& v : p) v /= sum;
    return p;
  };
  for (double& v : l) v /= s.temperature;
  if (s.top_k > 0 && s.top_k < static_cast<std::int64_t>(l.size())) {
    std::vector<double> sorted = l;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const double kth = sorted[static_cast<std::size_t>(s.top_k - 1)];
    for (double& v : l)
      if (v < kth) v = minus;
  }
  if (s.top_p < 1.0) {
    const std::vector<double> p = softmax(l);
    std::vector<std::size_t> order(l.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return l[a] > l[b]; });
    double before = 0;
    for (std::size_t n = 0; n < order.size(); ++n) {
      if (n > 0 && before >= s.top_p) l[order[n]] = minus;
      before += p[order[n]];
    }
  }
  if (s.min_p > 0.0) {
    const std::vector<double> p = softmax(l);
    const double top = *std::max_element(p.begin(), p.end());
    for (std::size_t i = 0; i < l.size(); ++i)
      if (p[i] < s.min_p * top) l[i] = minus;
  }
  return softmax(l);
}

int error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const core::Error& error) {
    return error.room() == "inference" ? error.number() : -1;
  }
  return 0;
}

}  // namespace

TEST_CASE("every draw is the inverse of the cumulative distribution, with its log-prob") {
  for (const std::size_t vocab : {1UL, 5UL, 100UL, 513UL, 3000UL})
    for (const double spread : {0.5, 3.0, 12.0}) {
      const std::vector<float> logits = random_logits(vocab, 11, spread);
      std::vector<TokenId> prompt, completion;
      for (TokenId id = 0; id < static_cast<TokenId>(std::min<std::size_t>(vocab, 40)); id += 3)
        (id % 2 == 0 ? prompt : completion).push_back(id);
      prompt.push_back(0);  // seen twice, penalised once
      std::vector<TokenId> seen = prompt;
      seen.insert(seen.end(), completion.begin(), completion.end());
      std::vector<SamplingConfig> settings(9);
      settings[1].temperature = 0.6;
      settings[2].top_k = 7;
      settings[3].top_p = 0.9;
      settings[4].min_p = 0.05;
      settings[5].repetition_penalty = 1.3;
      settings[6].temperature = 1.5, settings[6].top_k = 50, settings[6].top_p = 0.7, settings[6].min_p = 0.01;
      settings[7].top_p = 0.999999;
      settings[8].top_k = 1;
      TokenDraw draw;
      for (std::size_t c = 0; c < settings.size(); ++c) {
        const SamplingConfig& s = settings[c];
        const std::vector<double> p = reference_distribution({logits.begin(), logits.end()}, s, seen);
        for (int n = 0; n < 300; ++n) {
          const double u = (n + 0.37) / 300;
          const Drawn drawn = draw(logits, s, prompt, completion, u);
          double before = 0;
          for (TokenId id = 0; id < drawn.id; ++id) before += p[static_cast<std::size_t>(id)];
          const double own = p[static_cast<std::size_t>(drawn.id)];
          INFO("vocab " << vocab << " spread " << spread << " setting " << c << " u " << u << " id " << drawn.id);
          REQUIRE(own > 0.0);
          REQUIRE(before <= u + 1e-5);
          REQUIRE(before + own >= u - 1e-5);
          REQUIRE(drawn.log_prob == Approx(std::log(own)).margin(1e-5));
        }
      }
    }
}

TEST_CASE("the support is exactly what top_k, top_p and min_p keep") {
  const std::vector<float> logits = random_logits(64, 5, 2.0);
  std::vector<SamplingConfig> settings(5);
  settings[0].top_k = 5;
  settings[1].top_p = 0.8;
  settings[2].min_p = 0.2;
  settings[3].top_k = 10, settings[3].top_p = 0.5;
  settings[4].temperature = 2.0, settings[4].top_p = 0.95, settings[4].min_p = 0.1;
  for (const SamplingConfig& s : settings) {
    const std::vector<double> p = reference_distribution({logits.begin(), logits.end()}, s, {});
    std::set<TokenId> expected, found;
    for (std::size_t i = 0; i < p.size(); ++i)
      if (p[i] > 0) expected.insert(static_cast<TokenId>(i));
    TokenDraw draw;
    for (int n = 0; n < 20000; ++n) found.insert(draw(logits, s, {}, {}, (n + 0.5) / 20000).id);
    CHECK(found == expected);
  }
}

TEST_CASE("ties at the k-th logit are all kept") {
  const std::vector<float> logits{1.0f, 3.0f, 2.0f, 2.0f, 0.0f, 2.0f};
  SamplingConfig s;
  s.top_k = 2;
  TokenDraw draw;
  std::set<TokenId> found;
  for (int n = 0; n < 1000; ++n) found.insert(draw(logits, s, {}, {}, (n + 0.5) / 1000).id);
  CHECK(found == std::set<TokenId>{1, 2, 3, 5});
}

TEST_CASE("frequencies follow the distribution (chi-square)") {
  const std::vector<float> logits = random_logits(20, 9, 1.5);
  SamplingConfig s;
  s.temperature = 0.8;
  const std::vector<double> p = reference_distribution({logits.begin(), logits.end()}, s, {});
  TokenDraw draw;
  std::vector<double> counts(20);
  const int n = 40000;
  for (int i = 0; i < n; ++i) {
    const double u = inference::draw_uniform({.seed = 3, .step = 1}, static_cast<std::uint64_t>(i / 100),
                                             static_cast<std::uint32_t>(i % 100));
    counts[static_cast<std::size_t>(draw(logits, s, {}, {}, u).id)] += 1;
  }
  double chi = 0;
  for (std::size_t i = 0; i < 20; ++i) chi += (counts[i] - n * p[i]) * (counts[i] - n * p[i]) / (n * p[i]);
  CHECK(chi < 43.8);  // 19 degrees of freedom: exceeded once in 1,000 keys
  CHECK(chi > 5.4);   // too even happens once in 1,000 keys as well
}

TEST_CASE("uniforms depend on seed, step, completion and position, each apart") {
  const double base = inference::draw_uniform({.seed = 1, .step = 2}, 3, 4);
  CHECK(inference::draw_uniform({.seed = 1, .step = 2}, 3, 4) == base);
  CHECK(inference::draw_uniform({.seed = 2, .step = 2}, 3, 4) != base);
  CHECK(inference::draw_uniform({.seed = 1, .step = 3}, 3, 4) != base);
  CHECK(inference::draw_uniform({.seed = 1, .step = 2}, 4, 4) != base);
  CHECK(inference::draw_uniform({.seed = 1, .step = 2}, 3, 5) != base);
  CHECK(inference::draw_uniform({.seed = 1, .step = 2}, 4, 3) != base);
}

TEST_CASE("temperature 0 takes the first of the largest logits and says how likely it was") {
  std::vector<float> logits = random_logits(1000, 2, 3.0);
  logits[400] = logits[700] = 30.0f;
  SamplingConfig s;
  s.temperature = 0.0;
  s.top_p = 0.5;
  TokenDraw draw;
  const Drawn drawn = draw(logits, s, {}, {}, 0.99);
  CHECK(drawn.id == 400);
  CHECK(drawn.log_prob == Approx(std::log(0.5)).margin(1e-4));
  s.repetition_penalty = 2.0;
  CHECK(draw(logits, s, std::vector<TokenId>{400}, {}, 0.0).id == 700);
  s.temperature = 1e-40;  // 1/T overflows f32
  CHECK(draw(logits, s, std::vector<TokenId>{400}, {}, 0.0).id == 700);
}

TEST_CASE("one dominating logit, flat logits, and the ends of the unit interval") {
  TokenDraw draw;
  std::vector<float> sharp(2000, -200.0f);
  sharp[1500] = 100.0f;
  std::vector<float> flat(2000, 1.0f);
  for (const double u : {0.0, 0.5, 1.0 - 0x1.0p-53}) {
    CHECK(draw(sharp, {}, {}, {}, u).id == 1500);
    CHECK(draw(sharp, {}, {}, {}, u).log_prob == 0.0f);
    CHECK(draw(flat, {}, {}, {}, u).id == std::min(1999, static_cast<int>(u * 2000)));
    CHECK(draw(flat, {}, {}, {}, u).log_prob == Approx(-std::log(2000.0)).margin(1e-6));
  }
  SamplingConfig s;
  s.top_p = 1e-9;
  CHECK(draw(sharp, s, {}, {}, 0.7).id == 1500);
  s = {};
  s.min_p = 1.0;
  CHECK(draw(sharp, s, {}, {}, 0.7).id == 1500);
}

TEST_CASE("logits that are not finite are an error, wherever they are") {
  TokenDraw draw;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()})
    for (const std::size_t at : {0UL, 17UL, 99UL}) {
      std::vector<float> logits(100, 0.5f);
      logits[at] = bad;
      CHECK(error_of([&] { draw(logits, {}, {}, {}, 0.5); }) == 5);
    }
}

TEST_CASE("sampling settings out of range are usage errors") {
  const auto number = [](auto set) {
    SamplingConfig s;
    set(s);
    return error_of([&] { inference::check(s); });
  };
  CHECK(number([](SamplingConfig&) {}) == 0);
  CHECK(number([](SamplingConfig& s) { s.temperature = -0.1; }) == 4);
  CHECK(number([](SamplingConfig& s) { s.temperature = std::nan(""); }) == 4);
  CHECK(number([](SamplingConfig& s) { s.top_p = 0.0; }) == 4);
  CHECK(number([](SamplingConfig& s) { s.top_p = 1.1; }) == 4);
  CHECK(number([](SamplingConfig& s) { s.top_k = -1; }) == 4);
  CHECK(number([](SamplingConfig& s) { s.min_p = 1.5; }) == 4);
  CHECK(number([](SamplingConfig& s) { s.repetition_penalty = 0.0; }) == 4);
  CHECK(number([](SamplingConfig& s) { s.max_new_tokens = 0; }) == 4);
  SamplingConfig bad;
  bad.top_p = 2.0;
  try {
    inference::check(bad);
  } catch (const core::Error& error) {
    CHECK(error.exit_code() == 2);
  }
}
