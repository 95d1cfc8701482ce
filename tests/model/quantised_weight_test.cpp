#include <rlalgo/model/quantised_weight.hpp>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include <ATen/ATen.h>

#include <rlalgo/model/safetensors.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using model::Quantisation;
using model::QuantisedWeight;
using model::WeightCode;
using support::lacks;
using support::raised_by;

namespace {

const auto golden = std::filesystem::path(rlalgo::support::test_dir) / "golden/quantised/weights.safetensors";
constexpr int cases = 8;

bool same(const at::Tensor& ours, const at::Tensor& theirs) { return ours.flatten().equal(theirs.flatten()); }

}  // namespace

TEST_CASE("codes, scales and nested scales are bitsandbytes', to the bit") {
  const auto theirs = model::read_safetensors(golden);
  for (int n = 0; n < cases; ++n) {
    const std::string number = std::to_string(n);
    const at::Tensor weight = theirs.at(number + ".weight");
    for (const WeightCode code : {WeightCode::nf4, WeightCode::fp4}) {
      const std::string name = number + "." + std::string(model::name_of(code));
      INFO(name);
      const QuantisedWeight plain = model::quantise(weight, {.code = code, .nested = false}, name);
      CHECK(same(plain.codes(), theirs.at(name + ".codes")));
      CHECK(same(plain.scales(), theirs.at(name + ".scales")));
      const QuantisedWeight nested = model::quantise(weight, {.code = code}, name);
      CHECK(same(nested.codes(), theirs.at(name + ".codes")));
      CHECK(same(nested.scales(), theirs.at(name + ".nested.scales")));
      CHECK(same(nested.nested().scales, theirs.at(name + ".nested.outer")));
      CHECK(same(nested.nested().values, theirs.at(name + ".nested.values")));
      CHECK(static_cast<float>(nested.nested().offset) == theirs.at(name + ".nested.offset").item<float>());
      if (theirs.contains(name + ".dense")) {
        CHECK(same(plain.dense(at::kFloat), theirs.at(name + ".dense")));
        CHECK(same(nested.dense(at::kFloat), theirs.at(name + ".nested.dense")));
      }
    }
    INFO(number << " int8");
    const QuantisedWeight eight = model::quantise(weight, {.code = WeightCode::int8}, number);
    CHECK(same(eight.codes(), theirs.at(number + ".int8.codes")));
    CHECK(same(eight.scales(), theirs.at(number + ".int8.scales")));
    if (theirs.contains(number + ".int8.dense"))
      CHECK(eight.dense(at::kFloat).equal(theirs.at(number + ".int8.dense").nan_to_num(0.0)));
  }
}

TEST_CASE("parts of a weight are those of the whole, by the host's loops and by operators") {
  const auto theirs = model::read_safetensors(golden);
  for (int n = 0; n < cases; ++n)
    for (const WeightCode code : {WeightCode::nf4, WeightCode::fp4, WeightCode::int8})
      for (const bool nested : {false, true})
        for (const std::int64_t block : {32, 64, 256}) {
          INFO(n << " " << model::name_of(code) << " " << nested << " " << block);
          const at::Tensor weight = theirs.at(std::to_string(n) + ".weight");
          const QuantisedWeight w = model::quantise(weight, {.code = code, .block = block, .nested = nested}, "w");
          const at::Tensor whole = w.dense(at::kFloat);
          const std::int64_t rows = w.rows(), columns = w.columns();
          CHECK((whole - weight.to(at::kFloat)).abs().max().item<double>() <=
                0.2 * weight.to(at::kFloat).abs().max().item<double>() + 1e-30);
          for (const auto& [row, count, column, width] :
               {std::tuple{0L, rows, 0L, columns},
                {1L, rows - 1, 0L, columns},
                {rows / 2, 1L, 3L, columns - 5},
                {0L, rows, columns / 64 * 32, std::min(64L, columns - columns / 64 * 32)},
                {0L, rows, 0L, std::min(64L, columns)}}) {
            const at::Tensor expected = whole.narrow(0, row, count).narrow(1, column, width);
            CHECK(w.part(row, count, column, width, at::kFloat).equal(expected));
            CHECK(w.part_by_operators(row, count, column, width, at::kFloat).equal(expected));
            for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kDouble}) {
              CHECK(w.part(row, count, column, width, type).equal(expected.to(type)));
              CHECK(w.part_by_operators(row, count, column, width, type).equal(expected.to(type)));
            }
          }
          at::Tensor raw = at::empty({rows - 1, columns}), low = at::empty({rows - 1, columns}, at::kBFloat16);
          w.write_rows(1, rows - 1, raw.mutable_data_ptr<float>());
          w.write_rows(1, rows - 1, low.mutable_data_ptr<c10::BFloat16>());
          CHECK(raw.equal(whole.narrow(0, 1, rows - 1)));
          CHECK(low.equal(whole.narrow(0, 1, rows - 1).to(at::kBFloat16)));
        }
}

// 0.5 + 1/64 + 4/(64·256) bytes a weight, and 1 KB for the values of nested codes.
TEST_CASE("a weight of 4 bits takes 0.516 bytes, one of 8 bits 1.004") {
  const at::Tensor weight = at::randn({1024, 1024}).to(at::kBFloat16);
  const auto each = [&](const Quantisation& how) {
    return static_cast<double>(model::quantise(weight, how, "w").bytes()) / (1024.0 * 1024.0);
  };
  CHECK(each({}) == Approx(0.5 + 1.0 / 64 + 4.0 / (64 * 256) + 1024.0 / (1024 * 1024)).epsilon(1e-9));
  CHECK(each({.nested = false}) == Approx(0.5625).epsilon(1e-9));
  CHECK(each({.code = WeightCode::int8}) == Approx(1.0 + 4.0 / 1024).epsilon(1e-9));
}

TEST_CASE("a weight that is not finite is refused by name") {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()})
    for (const WeightCode code : {WeightCode::nf4, WeightCode::int8}) {
      at::Tensor weight = at::randn({3, 70});
      weight[2][69] = bad;
      CHECK(lacks(raised_by([&] { (void)model::quantise(weight, {.code = code}, "model.w"); }),
                  {"model.48", "tensor model.w"}) == "");
    }
  CHECK(lacks(raised_by([&] {
                (void)model::quantise(at::full({2, 4}, 70000.0), {.code = WeightCode::int8}, "w");
              }),
              {"model.48", "70000", "65504"}) == "");
  CHECK(model::quantise(at::full({2, 4}, 70000.0), {}, "w").dense(at::kFloat).sum().item<double>() > 0);
}

TEST_CASE("what stands in the place of a quantised weight has its shape, and is nobody's number") {
  const at::Tensor one = model::stand_in({5, 7}, at::TensorOptions().dtype(at::kBFloat16));
  CHECK(one.sizes() == at::IntArrayRef({5, 7}));
  CHECK(one.scalar_type() == at::kBFloat16);
  CHECK(one.storage().nbytes() == 2);
  CHECK(one.isnan().all().item<bool>());
  CHECK(model::is_stand_in(one));
  CHECK_FALSE(model::is_stand_in(at::zeros({5, 7})));
  CHECK_FALSE(model::is_stand_in({}));
}
