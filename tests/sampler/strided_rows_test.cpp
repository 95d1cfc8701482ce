#include <rlalgo/sampler/strided_rows.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include <support/catch.hpp>
#include <support/decoders.hpp>

#include <rlalgo/loss/global_token_count.hpp>
#include <rlalgo/loss/no_kl.hpp>
#include <rlalgo/loss/policy_gradient.hpp>
#include <rlalgo/loss/reinforce.hpp>
#include <rlalgo/loss/token_ratio.hpp>
#include <rlalgo/loss/with_cross_entropy.hpp>
#include <rlalgo/model/decoder.hpp>
#include <rlalgo/model/load.hpp>
#include <rlalgo/model/lora.hpp>
#include <rlalgo/model/tree_builder.hpp>

using namespace rlalgo;
using data::TokenId;
using sampler::Block;
using sampler::StridedDocument;
using sampler::StridedRows;
using Score = loss::PolicyGradient<loss::Reinforce, loss::TokenRatio, loss::NoKl, loss::GlobalTokenCount>;
using Loss = loss::WithCrossEntropy<Score>;

namespace {

StridedDocument document(std::size_t length, std::int64_t anchor, std::int64_t stride, std::size_t samples,
                         std::size_t tokens, int salt) {
  auto ids = std::make_shared<data::Document>();
  for (std::size_t i = 0; i < length; ++i) {
    ids->ids.push_back(static_cast<TokenId>((i * i + static_cast<std::size_t>(salt) * i + 5) % 23));
    ids->loss_mask.push_back(i % 3 != 1);
  }
  StridedDocument out{.document = ids, .anchor = anchor, .likelihood = true};
  for (std::int64_t start = anchor; start + static_cast<std::int64_t>(tokens) <= static_cast<std::int64_t>(length);
       start += stride) {
    Block block{.start = start, .samples = {}, .alignment = {}, .diversity = {}, .reward = {}, .advantage = {}};
    for (std::size_t j = 0; j < samples; ++j) {
      block.samples.emplace_back();
      for (std::size_t t = 0; t < tokens; ++t)
        block.samples.back().push_back(
            static_cast<TokenId>((start * 7 + static_cast<std::int64_t>(j * 5 + t * t)) % 23));
      block.advantage.push_back(0.7 - 0.4 * static_cast<double>(j) + 0.1 * static_cast<double>(start % 4));
    }
    out.blocks.push_back(std::move(block));
  }
  return out;
}

loss::Counts counts_of(const std::vector<std::vector<const StridedDocument*>>& parts) {
  loss::Counts counts;
  for (const auto& part : parts) {
    counts.micro_batches += 1;
    StridedRows::count(part, Loss::needs, counts);
  }
  return counts;
}

double step(model::Decoder& model, const std::vector<std::vector<const StridedDocument*>>& parts, const Loss& loss,
            double temperature, core::Metrics* metrics = nullptr) {
  const loss::Counts counts = counts_of(parts);
  double total = 0;
  loss::Metrics reported;
  for (const auto& part : parts) {
    const auto scores =
        model.score(StridedRows::tree(part, Loss::needs), {.temperature = temperature, .entropy = true});
    const loss::Result result = loss(StridedRows::collate(part, scores, Loss::needs), counts);
    result.value.backward();
    total += result.value.item<double>();
    reported.merge(result.metrics);
  }
  if (metrics != nullptr) reported.read_into(*metrics);
  return total;
}

// The same by ordinary sequences: every sample after its own copy of the text before it, every document once more.
double by_sequences(model::Decoder& model, const std::vector<const StridedDocument*>& rows, double rl, double ce,
                    double temperature) {
  at::Tensor policy, likelihood;
  double generated = 0, targets = 0;
  const auto log_probs = [&](const std::vector<TokenId>& prompt, const std::vector<TokenId>& completion, double t) {
    const model::Sequence one{prompt, completion};
    return model.score(model::build_flat_tree(std::span(&one, 1)), {.temperature = t}).log_prob;
  };
  for (const StridedDocument* row : rows) {
    const auto& ids = row->document->ids;
    for (const Block& block : row->blocks)
      for (std::size_t j = 0; j < block.samples.size(); ++j) {
        const at::Tensor term = log_probs({ids.begin(), ids.begin() + block.start}, block.samples[j], temperature)
                                    .sum()
                                    .mul(block.advantage[j]);
        policy = policy.defined() ? policy.add(term) : term;
        generated += static_cast<double>(block.samples[j].size());
      }
    const at::Tensor own = log_probs({ids.front()}, {ids.begin() + 1, ids.end()}, 1.0);
    for (std::size_t i = 1; i < ids.size(); ++i) {
      if (row->document->loss_mask[i] == 0) continue;
      const at::Tensor term = own[static_cast<std::int64_t>(i) - 1];
      likelihood = likelihood.defined() ? likelihood.add(term) : term;
      ++targets;
    }
  }
  const at::Tensor value = policy.mul(-rl / generated).add(likelihood.mul(-ce / targets));
  value.backward();
  return value.item<double>();
}

std::map<std::string, at::Tensor> gradients(model::Decoder& model) {
  std::map<std::string, at::Tensor> out;
  for (const model::Parameter& p : model.parameters()) {
    out[p.name] = p.value.grad().defined() ? p.value.grad().clone() : at::Tensor();
    if (p.value.grad().defined()) p.value.mutable_grad().zero_();
  }
  return out;
}

void check_same(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b) {
  for (const auto& [name, gradient] : a) {
    INFO(name);
    REQUIRE(gradient.defined() == b.at(name).defined());
    if (gradient.defined()) CHECK((gradient - b.at(name)).abs().max().item<double>() < 1e-12);
  }
}

}  // namespace

TEST_CASE("the layout of the issue: predictors and positions of three blocks of two tokens") {
  StridedDocument row = document(12, 2, 4, 1, 2, 0);
  const StridedDocument* rows[] = {&row};
  const model::TokenTree tree = StridedRows::tree(rows, {.answer_likelihood = false});
  CHECK(tree.tokens() == 10 + 3);  // up to the last anchor, and the first token of every block
  CHECK(tree.source == std::vector<std::int64_t>{1, 10, 5, 11, 9, 12});
  CHECK(tree.positions == std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 2, 6, 10});
  CHECK(tree.untempered == 0);
  const model::TokenTree both = StridedRows::tree(rows, Loss::needs);
  CHECK(both.untempered == 7);  // of 12 tokens, 0 2 3 5 6 8 9 11 are trained, and the first has no predictor
  CHECK(both.source.back() == 10);
  CHECK(both.row_begin == std::vector<std::int64_t>{0, 2, 4, 6, 13});
}

TEST_CASE("values and gradients are those of ordinary sequences") {
  for (const char* type : {"llama", "qwen2", "qwen3"})
    for (const bool adapter : {false, true}) {
      INFO(type << (adapter ? " with an adapter" : ""));
      const auto model =
          model::random_decoder(model::parse_hf_config(support::small_config(type), "test"), 3, at::kDouble);
      if (adapter)
        model::attach_lora(*model,
                           {.r = 3, .alpha = 5, .target_pattern = "all-linear", .init = model::LoraInit::random}, 4);
      const StridedDocument a = document(29, 4, 3, 3, 4, 1), b = document(12, 2, 4, 3, 2, 2),
                            c = document(9, 9, 1, 3, 4, 3);
      REQUIRE(c.blocks.empty());
      for (const double temperature : {1.0, 0.6}) {
        core::Metrics metrics;
        const double value =
            step(*model, {{&a, &b, &c}}, Loss({.policy = 0.8, .cross_entropy = 0.3}, Score({})), temperature, &metrics);
        const auto found = gradients(*model);
        CHECK(value == Approx(by_sequences(*model, {&a, &b, &c}, 0.8, 0.3, temperature)).epsilon(1e-12));
        check_same(found, gradients(*model));
        CHECK(0.8 * metrics.value("rl_loss") + 0.3 * metrics.value("ce_loss") == Approx(value).epsilon(1e-12));
      }
    }
}

TEST_CASE("texts of a chunk that do not see each other are documents of their own") {
  const auto model =
      model::random_decoder(model::parse_hf_config(support::small_config("llama"), "test"), 3, at::kDouble);
  StridedDocument a = document(13, 4, 3, 3, 4, 1), b = document(9, 2, 4, 3, 2, 2);
  auto chunk = std::make_shared<data::Document>(*a.document);
  chunk->texts = {0, 13};
  chunk->ids.insert(chunk->ids.end(), b.document->ids.begin(), b.document->ids.end());
  chunk->loss_mask.insert(chunk->loss_mask.end(), b.document->loss_mask.begin(), b.document->loss_mask.end());
  StridedDocument packed{.document = chunk, .anchor = 4, .likelihood = true, .blocks = a.blocks};
  for (Block block : b.blocks) {
    block.start += 13;
    packed.blocks.push_back(block);
  }
  REQUIRE(chunk->loss_mask[13] == 1);
  CHECK(StridedRows::likelihood_targets(packed, Loss::needs).size() ==
        StridedRows::likelihood_targets(a, Loss::needs).size() +
            StridedRows::likelihood_targets(b, Loss::needs).size());
  const Loss loss({.policy = 0.8, .cross_entropy = 0.3}, Score({}));
  const double value = step(*model, {{&packed}}, loss, 0.6);
  const auto found = gradients(*model);
  CHECK(value == Approx(step(*model, {{&a, &b}}, loss, 0.6)).epsilon(1e-12));
  check_same(found, gradients(*model));
  const StridedDocument* rows[] = {&packed};
  const model::TokenTree tree = StridedRows::tree(rows, Loss::needs);
  CHECK(std::count(tree.positions.begin(), tree.positions.end(), 0) == 2);  // positions restart
  chunk->texts.clear();
  CHECK(step(*model, {{&packed}}, loss, 0.6) != Approx(value).epsilon(1e-6));  // now the second sees the first
}

TEST_CASE("what a reader is shown: the block in the middle, behind its context") {
  StridedDocument a = document(12, 2, 4, 3, 2, 0), none = document(9, 9, 1, 2, 4, 0),
                  long_one = document(90, 80, 8, 3, 4, 1);
  for (StridedDocument* row : {&a, &long_one})
    for (Block& block : row->blocks) {
      block.alignment = {0.5, 0.25, 1.0};
      block.diversity = {0.1, 0.2, 0.3};
      block.reward = {0.4, 0.05, 0.7};
    }
  const StridedDocument* rows[] = {&none, &a, &long_one};
  const auto shown = StridedRows::samples(rows, 4, data::ids_as_text);
  REQUIRE(shown.size() == 4);
  const auto& ids = a.document->ids;
  CHECK(shown[0].prompt == data::ids_as_text(std::span(ids).first(6)));
  CHECK(shown[0].logged.at("ground_truth") == data::ids_as_text(std::span(ids).subspan(6, 2)));
  CHECK(shown[1].completion == data::ids_as_text(a.blocks[1].samples[1]));
  CHECK(shown[2].rewards ==
        std::vector<std::pair<std::string, double>>{{"alignment", 1.0}, {"diversity", 0.3}, {"reward", 0.7}});
  CHECK(shown[1].advantage == a.blocks[1].advantage[1]);
  CHECK(shown[3].prompt == "…" + data::ids_as_text(std::span(long_one.document->ids).subspan(16, 64)));
  CHECK(StridedRows::samples(rows, 0, data::ids_as_text).empty());
}

TEST_CASE("a split into micro-batches changes neither loss nor gradient nor metrics") {
  const auto model =
      model::random_decoder(model::parse_hf_config(support::small_config("qwen3"), "test"), 3, at::kDouble);
  const StridedDocument a = document(29, 4, 3, 3, 4, 1), b = document(12, 2, 4, 3, 2, 2),
                        c = document(9, 9, 1, 3, 4, 3);
  const Loss loss({.policy = 1.0, .cross_entropy = 0.1}, Score({}));
  core::Metrics whole, split;
  const double value = step(*model, {{&a, &b, &c}}, loss, 0.7, &whole);
  const auto expected = gradients(*model);
  CHECK(step(*model, {{&c}, {&a}, {&b}}, loss, 0.7, &split) == Approx(value).epsilon(1e-12));
  check_same(expected, gradients(*model));
  for (const char* name : {"rl_loss", "ce_loss", "entropy"})
    CHECK(split.value(name) == Approx(whole.value(name)).epsilon(1e-12));
}

// Derived by hand: advantages .9, −.3, −.6 and log-probs −.1 … −.6 of two tokens of three blocks, step-major.
TEST_CASE("every token of a block has the advantage of its block") {
  StridedDocument row = document(12, 2, 4, 1, 2, 0);
  for (std::size_t k = 0; k < 3; ++k) row.blocks[k].advantage = {std::vector{.9, -.3, -.6}[k]};
  row.likelihood = false;
  const StridedDocument* rows[] = {&row};
  model::Scores scores;
  scores.log_prob = tensor::from_values(std::vector<double>{-.1, -.4, -.2, -.5, -.3, -.6}, at::kDouble);
  loss::Counts counts;
  StridedRows::count(rows, Loss::needs, counts);
  CHECK(counts.rows == 3);
  CHECK(counts.tokens == 6);
  CHECK(counts.likelihood_tokens == 0);
  const Loss loss({}, Score({}));
  CHECK(loss(StridedRows::collate(rows, scores, Loss::needs), counts).value.item<double>() == Approx(-.05));
}

TEST_CASE("what is trained of a document") {
  StridedDocument row = document(9, 9, 1, 2, 4, 0);
  CHECK(StridedRows::trained(row, Loss::needs));
  CHECK_FALSE(StridedRows::trained(row, {}));
  row.likelihood = false;
  CHECK_FALSE(StridedRows::trained(row, Loss::needs));
  CHECK(StridedRows::trained(document(12, 2, 4, 1, 2, 0), {}));
  CHECK(StridedRows::tokens(document(12, 2, 4, 1, 2, 0)) == 12 + 6);
}
