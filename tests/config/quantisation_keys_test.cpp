#include <support/scratch.hpp>

#include <string>

#include <rlalgo/config/quantisation_keys.hpp>

using namespace rlalgo::config;
using rlalgo::model::ProductsIn;
using rlalgo::model::WeightCode;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

Node text(const std::string& word) { return make_scalar(word, false, {.file = "c.yaml", .line = 3}); }

void read(QuantisedBase& base, std::string_view name, const Node& node) {
  for (const Keys& rows : {quantisation_keys(base), bnb_keys(base)})
    for (const Key& row : rows)
      if (row.name == name) row.reader(node);
}

}  // namespace

TEST_CASE("a base in bits is nf4 with scales quantised twice, unless it says otherwise") {
  QuantisedBase base;
  CHECK_FALSE(base.on());
  base.load_in_4bit = true;
  CHECK(base.on());
  CHECK(base.quantisation().code == WeightCode::nf4);
  CHECK(base.quantisation().block == 64);
  CHECK(base.quantisation().nested);
  CHECK(base.quantisation().products == ProductsIn::model);
  base.bnb_4bit_quant_type = "fp4";
  base.bnb_4bit_compute_dtype = "bfloat16";
  CHECK(base.quantisation().code == WeightCode::fp4);
  CHECK(base.quantisation().products == ProductsIn::bfloat16);
  base.load_in_4bit = false;
  base.load_in_8bit = true;
  CHECK(base.quantisation().code == WeightCode::int8);
  CHECK(base.quantisation().products == ProductsIn::model);
}

TEST_CASE("products are named as in PyTorch, and float16 is float32") {
  QuantisedBase base;
  for (const auto& [word, meant] :
       {std::pair{"torch.bfloat16", "bfloat16"}, std::pair{"float16", "float32"}, std::pair{"float32", "float32"}}) {
    read(base, "bnb_4bit_compute_dtype", text(word));
    CHECK(base.bnb_4bit_compute_dtype == meant);
  }
  CHECK(lacks(raised_by([&] { read(base, "bnb_config_kwargs.bnb_4bit_compute_dtype", text("int8")); }),
              {"bnb_config_kwargs.bnb_4bit_compute_dtype", "c.yaml:3", "bfloat16"}) == "");
}

TEST_CASE("blocks are powers of two from 32 to 4096") {
  QuantisedBase base;
  read(base, "bnb_config_kwargs.blocksize", text("128"));
  CHECK(base.blocksize == 128);
  for (const char* wrong : {"16", "100", "8192", "0", "-64"})
    CHECK(lacks(raised_by([&] { read(base, "bnb_config_kwargs.blocksize", text(wrong)); }), {"blocksize", "4096"}) ==
          "");
}

TEST_CASE("without a base in bits its keys have no effect") {
  QuantisedBase base;
  for (const Key& row : quantisation_keys(base))
    CHECK(row.idle_because().find("load_in_4bit") != std::string_view::npos);
  base.load_in_8bit = true;
  for (const Key& row : quantisation_keys(base)) CHECK(row.idle_because().empty());
}
