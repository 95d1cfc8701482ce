#include <rlalgo/distributed/flat_unit.hpp>

#include <string>
#include <vector>

#include <rlalgo/tensor/functions.hpp>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using distributed::FlatUnit;
using tensor::Tensor;

namespace {

std::vector<FlatUnit::Entry> entries(bool trained = false) {
  return {{"a", at::arange(40, at::kFloat).view({8, 5}).requires_grad_(trained)},
          {"b", at::arange(3, at::kFloat).add_(100).requires_grad_(trained), false},
          {"c", at::arange(50, at::kFloat).add_(1000).requires_grad_(trained)}};
}

}  // namespace

TEST_CASE("shards of all ranks make the whole, and the tensors lie in it") {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    std::vector<Tensor> parts;
    for (int r = 0; r < ranks; ++r) {
      const auto own = entries();
      const FlatUnit unit(own, r, ranks, false);
      CHECK(unit.shard() % 16 == 0);
      CHECK(unit.elements() == ranks * unit.shard());
      CHECK(unit.entries()[1].offset == 48);  // multiples of 64 bytes
      CHECK(unit.entries()[2].offset == 64);
      CHECK_FALSE(unit.whole().defined());
      for (const FlatUnit::Entry& entry : own) {
        CHECK(entry.value.storage().nbytes() == 0);
      }
      CHECK(own[0].value.sizes() == std::vector<std::int64_t>{8, 5});
      parts.push_back(unit.own());
    }
    const auto own = entries(), expected = entries();
    const Tensor alias = own[0].value.detach();
    FlatUnit unit(own, 0, ranks, false);
    unit.place(at::cat(parts));
    for (std::size_t i = 0; i < own.size(); ++i) CHECK(at::equal(own[i].value, expected[i].value));
    CHECK(at::equal(alias, expected[0].value));  // who shares the memory follows
    CHECK(unit.clear().numel() == unit.elements());
    CHECK(alias.storage().nbytes() == 0);
  }
}

TEST_CASE("with owners a tensor lies whole in the shard of its rank, which keeps it while no whole is there") {
  const auto expected = entries();
  for (const int rank : {0, 1, 2}) {
    const auto own = entries(true);
    FlatUnit unit(own, rank, 3, false, {0, 0, 2});
    CHECK(unit.shard() == 64);  // of the first: 48 and 16; of the second: nothing
    CHECK(unit.entries()[2].offset == 128);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const bool here = rank == (i < 2 ? 0 : 2);
      CHECK(unit.piece(unit.entries()[i]).has_value() == here);
      CHECK((own[i].value.storage().nbytes() > 0) == here);
      if (here) CHECK(at::equal(own[i].value.detach(), expected[i].value));
    }
    own[2].value.mutable_grad() = at::ones({50});
    const Tensor shard = at::full({64}, 5.0, at::kDouble);
    unit.take_own_gradients(shard);
    CHECK(shard.sum().item<double>() == (rank == 2 ? 50.0 : 0.0));
    CHECK_FALSE(own[2].value.grad().defined());
    unit.place(at::zeros({unit.elements()}));
    CHECK(own[0].value.detach().abs().max().item<float>() == 0.0F);
    (void)unit.clear();
    if (rank == 0) CHECK(at::equal(own[0].value.detach(), expected[0].value));
    CHECK((own[2].value.storage().nbytes() > 0) == (rank == 2));
  }
}

TEST_CASE("the pieces of the ranks cover every element of a tensor once") {
  for (const int ranks : {1, 2, 5}) {
    const FlatUnit unit(entries(), 0, ranks, false);
    for (const FlatUnit::Entry& entry : unit.entries()) {
      std::int64_t next = 0;
      for (int r = 0; r < ranks; ++r) {
        const auto piece = unit.piece(entry, r);
        if (!piece) continue;
        CHECK(piece->begin == next);
        CHECK(r * unit.shard() + piece->at == entry.offset + piece->begin);
        next = piece->end;
      }
      CHECK(next == entry.value.numel());
    }
  }
}

TEST_CASE("a resident unit keeps its tensors whole, its shard among them") {
  const auto own = entries(true), expected = entries();
  const FlatUnit unit(own, 1, 2, true);
  CHECK(unit.trained());
  for (std::size_t i = 0; i < own.size(); ++i) CHECK(at::equal(own[i].value, expected[i].value));
  const auto piece = unit.piece(unit.entries()[2]);
  REQUIRE(piece.has_value());
  unit.own().narrow(0, piece->at, 1).fill_(-1.0);
  CHECK(own[2].value.detach()[piece->begin].item<float>() == -1.0F);
}

TEST_CASE("gradients are laid out like their tensors, 0 where there is none") {
  auto own = entries(true);
  FlatUnit unit(own, 0, 2, true);
  own[0].value.mutable_grad() = at::ones({8, 5}, at::kFloat);
  own[2].value.mutable_grad() = at::full({50}, 2.0, at::kFloat);
  const Tensor flat = at::full({unit.elements()}, 7.0, at::kFloat);
  unit.take_gradients(flat);
  CHECK(flat.sum().item<float>() == 40.0F + 100.0F);
  CHECK(flat[39].item<float>() == 1.0F);
  CHECK(flat[48].item<float>() == 0.0F);
  CHECK(flat[64].item<float>() == 2.0F);
  CHECK_FALSE(own[0].value.grad().defined());
}

TEST_CASE("tensors that cannot be sharded are refused by name") {
  const Tensor both = at::zeros({4, 4}, at::kFloat);
  const auto refused = [](Tensor value) {
    return support::raised_by([&] { (void)FlatUnit({{"layer.weight", std::move(value)}}, 0, 2, false); });
  };
  for (const Tensor& value : {both.narrow(0, 0, 2), both.narrow(0, 2, 2), both.clone().t()})
    CHECK(support::lacks(refused(value), {"distributed.12", "layer.weight"}) == "");
  CHECK(support::number_raised_by([&] {
          (void)FlatUnit({{"a", at::zeros({2}, at::kFloat)}, {"b", at::zeros({2}, at::kDouble)}}, 0, 2, false);
        }) == "distributed.12");
}
