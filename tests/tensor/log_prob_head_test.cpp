#include <support/catch.hpp>

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <rlalgo/tensor/log_prob_head.hpp>

namespace {
using at::Tensor;
using rlalgo::tensor::log_prob_head;
using rlalgo::tensor::LogProbOptions;
using rlalgo::tensor::LogProbs;

struct Case {
  Tensor hidden, weight, bias, targets;
};

// The same function by plain operations, logits in memory.
LogProbs materialised(const Case& c, double temperature, double cap = 0.0) {
  Tensor logits = c.hidden.matmul(c.weight.t());
  if (c.bias.defined()) logits = logits + c.bias;
  if (cap > 0) logits = at::tanh(logits / cap) * cap;
  const Tensor log_p = (logits / temperature).log_softmax(-1);
  return {log_p.gather(1, c.targets.unsqueeze(1)).squeeze(1), -(log_p.exp() * log_p).sum(-1)};
}

Case make_case(std::int64_t n, std::int64_t h, std::int64_t v, at::ScalarType dtype = at::kDouble, bool bias = true) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  const auto options = at::TensorOptions().dtype(dtype);
  const auto draw = [&](at::IntArrayRef sizes) { return at::randn(sizes, generator, at::kDouble).to(options); };
  Case c{draw({n, h}), draw({v, h}), bias ? draw({v}) : Tensor(), at::randint(v, {n}, generator, at::kLong)};
  c.hidden.requires_grad_();
  c.weight.requires_grad_();
  if (bias) c.bias.requires_grad_();
  return c;
}

std::vector<Tensor> leaves(const Case& c) {
  std::vector<Tensor> out = {c.hidden, c.weight};
  if (c.bias.defined()) out.push_back(c.bias);
  return out;
}

std::vector<Tensor> gradients(const Tensor& loss, const Case& c) {
  for (Tensor x : leaves(c)) x.mutable_grad() = Tensor();
  loss.backward();
  std::vector<Tensor> out;
  for (const Tensor& x : leaves(c)) out.push_back(x.grad().clone());
  return out;
}

double distance(const Tensor& a, const Tensor& b) {
  REQUIRE(a.sizes() == b.sizes());
  return a.numel() == 0 ? 0.0 : (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

// A loss that weights every token differently, so that no gradient is uniform.
Tensor weigh(const LogProbs& s, bool entropy) {
  const Tensor w = at::arange(1, s.log_prob.size(0) + 1, s.log_prob.options()).cos();
  Tensor loss = (s.log_prob * w).sum();
  if (entropy) loss = loss + (s.entropy * w.square()).sum() * 0.7;
  return loss;
}
}  // namespace

TEST_CASE("the log-prob head equals log-softmax and gather, values and gradients, for any tile size") {
  const bool bias = GENERATE(false, true);
  const bool entropy_gradient = GENERATE(false, true);
  const Case c = make_case(13, 5, 37, at::kDouble, bias);
  const double temperature = GENERATE(1.0, 0.7, 2.5);
  const double cap = GENERATE(0.0, 1.4);
  const LogProbs expected = materialised(c, temperature, cap);
  const auto expected_gradients = gradients(weigh(expected, entropy_gradient), c);
  for (const std::int64_t tile_vocabulary : {0, 1, 8, 36, 37, 1000})
    for (const std::int64_t tile_tokens : {0, 1, 5, 13, 1000})
      for (const std::int64_t cache_bytes : {0, 3000, 1 << 20}) {
        const LogProbs actual = log_prob_head(c.hidden, c.weight, c.targets,
                                              {.temperature = temperature,
                                               .cap = cap,
                                               .entropy = true,
                                               .entropy_gradient = entropy_gradient,
                                               .tile_tokens = tile_tokens,
                                               .tile_vocabulary = tile_vocabulary,
                                               .cache_bytes = cache_bytes},
                                              c.bias);
        CHECK(distance(actual.log_prob, expected.log_prob) < 1e-12);
        CHECK(distance(actual.entropy, expected.entropy) < 1e-12);
        CHECK(actual.entropy.requires_grad() == entropy_gradient);
        const auto actual_gradients = gradients(weigh(actual, entropy_gradient), c);
        for (std::size_t i = 0; i < actual_gradients.size(); ++i)
          CHECK(distance(actual_gradients[i], expected_gradients[i]) < 1e-12);
      }
}

TEST_CASE("the log-prob head's gradient is the finite difference of its value") {
  const Case c = make_case(4, 3, 11);
  const LogProbOptions options{.temperature = 0.8, .entropy = true, .entropy_gradient = true, .tile_vocabulary = 4};
  const auto value = [&] { return weigh(log_prob_head(c.hidden, c.weight, c.targets, options, c.bias), true); };
  const auto analytic = gradients(value(), c);
  const c10::NoGradGuard no_grad;
  const double step = 1e-6;
  for (std::size_t i = 0; i < analytic.size(); ++i) {
    Tensor flat = leaves(c)[i].view({-1});
    for (std::int64_t k = 0; k < flat.numel(); ++k) {
      const double x = flat[k].item<double>();
      flat[k] = x + step;
      const double up = value().item<double>();
      flat[k] = x - step;
      const double down = value().item<double>();
      flat[k] = x;
      CHECK((up - down) / (2 * step) == Approx(analytic[i].view({-1})[k].item<double>()).margin(1e-8));
    }
  }
}

TEST_CASE("the log-prob head in float32 and bfloat16 keeps float32 accuracy of its own inputs") {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Case c = make_case(40, 16, 300, dtype);
    Case wide{c.hidden.detach().to(at::kDouble), c.weight.detach().to(at::kDouble), c.bias.detach().to(at::kDouble),
              c.targets};
    for (Tensor x : leaves(wide)) x.requires_grad_();
    const LogProbOptions options{
        .temperature = 0.9, .entropy = true, .entropy_gradient = true, .tile_tokens = 10, .tile_vocabulary = 64};
    const LogProbs actual = log_prob_head(c.hidden, c.weight, c.targets, options, c.bias);
    const LogProbs expected = materialised(wide, 0.9);
    CHECK(actual.log_prob.scalar_type() == at::kFloat);
    CHECK(distance(actual.log_prob, expected.log_prob) < 1e-5);
    CHECK(distance(actual.entropy, expected.entropy) < 1e-5);
    const auto a = gradients(weigh(actual, true), c);
    const auto e = gradients(weigh(expected, true), wide);
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK(a[i].scalar_type() == dtype);
      CHECK(distance(a[i], e[i].to(dtype)) < (dtype == at::kFloat ? 2e-5 : 0.04));
    }
  }
}

TEST_CASE(
    "products in bfloat16 are those of the same numbers in float32, for any tile, and a second backward pass repeats") {
  // ∂/∂l is rounded to bfloat16 there, once: 2⁻⁹ of each term.
  const bool entropy_gradient = GENERATE(false, true), bias = GENERATE(false, true);
  const std::int64_t tokens = GENERATE(1, 7, 130);
  const Case c = make_case(tokens, 34, 301, at::kBFloat16, bias);
  Case wide{c.hidden.detach().to(at::kFloat), c.weight.detach().to(at::kFloat),
            bias ? c.bias.detach().to(at::kFloat) : Tensor(), c.targets};
  for (Tensor x : leaves(wide)) x.requires_grad_();
  for (const std::int64_t tile_vocabulary : {7, 64, 300}) {
    for (const std::int64_t tile_tokens : {0, 5, 64}) {
      for (const std::int64_t cache_bytes : {0, 1 << 20}) {
        const LogProbOptions options{.temperature = 1.3,
                                     .entropy = true,
                                     .entropy_gradient = entropy_gradient,
                                     .tile_tokens = tile_tokens,
                                     .tile_vocabulary = tile_vocabulary,
                                     .cache_bytes = cache_bytes};
        const LogProbs actual = log_prob_head(c.hidden, c.weight, c.targets, options, c.bias);
        const LogProbs expected = log_prob_head(wide.hidden, wide.weight, wide.targets, options, wide.bias);
        CHECK(distance(actual.log_prob, expected.log_prob) < 3e-5);
        CHECK(distance(actual.entropy, expected.entropy) < 3e-5);
        const auto e = gradients(weigh(expected, entropy_gradient), wide);
        const Tensor loss = weigh(actual, entropy_gradient);
        for (int pass = 0; pass < 2; ++pass) {
          for (Tensor x : leaves(c)) x.mutable_grad() = Tensor();
          loss.backward({}, /*retain_graph=*/true);
          for (std::size_t i = 0; i < e.size(); ++i) {
            const double scale = e[i].abs().max().item<double>();
            CHECK(distance(leaves(c)[i].grad(), e[i]) < 0.01 * scale);
          }
        }
      }
    }
  }
}

TEST_CASE("products in bfloat16 leave out the gradients that nobody wants") {
  const Case c = make_case(20, 16, 150, at::kBFloat16, false);
  const LogProbOptions options{.tile_vocabulary = 64};
  const auto both = gradients(weigh(log_prob_head(c.hidden, c.weight, c.targets, options), false), c);
  const Tensor weight = c.weight.detach(), hidden = c.hidden.detach();
  c.hidden.mutable_grad() = c.weight.mutable_grad() = Tensor();
  weigh(log_prob_head(c.hidden, weight, c.targets, options), false).backward();
  CHECK(at::equal(c.hidden.grad(), both[0]));
  weigh(log_prob_head(hidden, c.weight, c.targets, options), false).backward();
  CHECK(at::equal(c.weight.grad(), both[1]));
}

TEST_CASE("the log-prob head is exact at extreme logits") {
  Case c = make_case(3, 2, 50, at::kFloat, false);
  {
    const c10::NoGradGuard no_grad;
    c.hidden.mul_(3e4);
  }
  const LogProbOptions options{.entropy = true, .entropy_gradient = true, .tile_vocabulary = 7};
  const LogProbs actual = log_prob_head(c.hidden, c.weight, c.targets, options);
  const LogProbs expected = materialised(c, 1.0);
  CHECK(actual.log_prob.isfinite().all().item<bool>());
  CHECK(actual.entropy.isfinite().all().item<bool>());
  CHECK(distance(actual.log_prob / expected.log_prob.clamp_max(-1e-3), at::ones({3})) < 1e-5);
  for (const Tensor& gradient : gradients(weigh(actual, true), c)) CHECK(gradient.isfinite().all().item<bool>());
}

TEST_CASE("the log-prob head records no graph where none is wanted") {
  const Case c = make_case(6, 4, 9, at::kDouble, false);
  {
    const c10::NoGradGuard no_grad;
    CHECK_FALSE(log_prob_head(c.hidden, c.weight, c.targets).log_prob.requires_grad());
  }
  // A frozen head: the gradient reaches the hidden states only.
  const Tensor frozen = c.weight.detach();
  log_prob_head(c.hidden, frozen, c.targets, {.tile_vocabulary = 4}).log_prob.sum().backward();
  const Tensor through_frozen = c.hidden.grad().clone();
  CHECK_FALSE(frozen.grad().defined());
  c.hidden.mutable_grad() = Tensor();
  materialised(c, 1.0).log_prob.sum().backward();
  CHECK(distance(through_frozen, c.hidden.grad()) < 1e-12);
  // Frozen hidden states: only the head learns.
  const Tensor expected = c.weight.grad().clone();
  c.weight.mutable_grad() = Tensor();
  log_prob_head(c.hidden.detach(), c.weight, c.targets).log_prob.sum().backward();
  CHECK(distance(c.weight.grad(), expected) < 1e-12);
}

TEST_CASE("a head tied to the embedding receives both gradients, and gradients accumulate over calls") {
  const Case c = make_case(6, 4, 9, at::kDouble, false);
  const Tensor ids = at::arange(6, at::kLong);
  const auto hidden = [&] { return c.weight.index_select(0, ids).tanh(); };
  Case tied{hidden(), c.weight, {}, c.targets};
  materialised(tied, 1.0).log_prob.sum().backward();
  const Tensor expected = c.weight.grad().clone();
  c.weight.mutable_grad() = Tensor();
  for (int call = 0; call < 2; ++call)
    log_prob_head(hidden(), c.weight, c.targets, {.tile_vocabulary = 4}).log_prob.sum().backward();
  CHECK(distance(c.weight.grad(), expected * 2) < 1e-12);
}

TEST_CASE("one graph of the log-prob head can be walked twice") {
  const Case c = make_case(6, 4, 9);
  const Tensor loss = log_prob_head(c.hidden, c.weight, c.targets, {.tile_vocabulary = 4}, c.bias).log_prob.sum();
  loss.backward({}, /*retain_graph=*/true);
  const Tensor once = c.weight.grad().clone();
  loss.backward();
  CHECK(distance(c.weight.grad(), once * 2) < 1e-15);
}

TEST_CASE("a head that adds its weight's gradient gives the sum of the gradients it would have returned") {
  const auto dtype = GENERATE(at::kDouble, at::kFloat, at::kBFloat16);
  const std::int64_t hidden_size = GENERATE(3, 40);  // its gradient has room for logits of 3 or of all 13 tokens
  const std::int64_t tile_tokens = GENERATE(0, 5);
  const Case c = make_case(13, hidden_size, 37, dtype, false);
  const double rounding = dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 2e-5 : 0.08;
  LogProbOptions options{.tile_tokens = tile_tokens, .tile_vocabulary = 8};
  const auto loss = [&] { return weigh(log_prob_head(c.hidden, c.weight, c.targets, options), false); };
  const auto once = gradients(loss(), c);
  options.adds_weight_gradient = true;
  const auto added = gradients(loss(), c);  // makes it
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(distance(added[i], once[i]) < rounding);
  const void* const memory = c.weight.grad().data_ptr();
  const Tensor twice = loss();
  twice.backward({}, /*retain_graph=*/true);  // adds to it
  twice.backward();
  CHECK(c.weight.grad().data_ptr() == memory);
  CHECK(distance(c.weight.grad(), once[1] * 3) < 3 * rounding);
  CHECK(distance(c.hidden.grad(), once[0] * 3) < 3 * rounding);
  // Two passes of one graph, begun before there is a gradient.
  for (Tensor x : leaves(c)) x.mutable_grad() = Tensor();
  (loss() + loss()).backward();
  CHECK(distance(c.weight.grad(), once[1] * 2) < 2 * rounding);
  // Where the hidden states carry no gradient, or the weight is computed, autograd carries the weight's.
  c.weight.mutable_grad() = Tensor();
  weigh(log_prob_head(c.hidden.detach(), c.weight, c.targets, options), false).backward();
  CHECK(distance(c.weight.grad(), once[1]) < rounding);
  c.weight.mutable_grad() = Tensor();
  weigh(log_prob_head(c.hidden, c.weight * 1.0, c.targets, options), false).backward();
  CHECK(distance(c.weight.grad(), once[1]) < rounding);
}

TEST_CASE("the log-prob head accepts zero tokens") {
  const Case c = make_case(0, 4, 9);
  const LogProbs scores = log_prob_head(c.hidden, c.weight, c.targets, {.entropy = true}, c.bias);
  CHECK(scores.log_prob.sizes() == at::IntArrayRef({0}));
  CHECK(scores.entropy.sizes() == at::IntArrayRef({0}));
  scores.log_prob.sum().backward();
  CHECK(c.weight.grad().abs().max().item<double>() == 0.0);
}

TEST_CASE("the log-prob head refuses what does not fit, by number") {
  const Case c = make_case(3, 4, 9);
  using Catch::Matchers::Contains;
  const auto with_target = [&](std::int64_t id) {
    return log_prob_head(c.hidden, c.weight, at::full({3}, id, at::kLong));
  };
  CHECK_THROWS_WITH(with_target(9), Contains("[rlalgo.tensor.2]") && Contains("found 9") && Contains("0 … 8"));
  CHECK_THROWS_WITH(with_target(-1), Contains("[rlalgo.tensor.2]") && Contains("found -1"));
  CHECK_THROWS_WITH(log_prob_head(c.hidden, c.weight, c.targets.slice(0, 1)), Contains("[rlalgo.tensor.1]"));
  CHECK_THROWS_WITH(log_prob_head(c.hidden, c.weight.slice(1, 1), c.targets), Contains("[rlalgo.tensor.1]"));
  CHECK_THROWS_WITH(log_prob_head(c.hidden, c.weight, c.targets, {}, c.bias.slice(0, 1)),
                    Contains("[rlalgo.tensor.1]"));
  CHECK_THROWS_WITH(log_prob_head(c.hidden, c.weight, c.targets, {.temperature = 0.0}), Contains("[rlalgo.tensor.3]"));
}

TEST_CASE("the log-prob head notices a parameter update between forward and backward") {
  const Case c = make_case(3, 4, 9);
  const Tensor loss = log_prob_head(c.hidden, c.weight, c.targets).log_prob.sum();
  {
    const c10::NoGradGuard no_grad;
    c.weight.add_(1.0);
  }
  CHECK_THROWS_WITH(loss.backward(), Catch::Matchers::Contains("[rlalgo.tensor.5]"));
}
