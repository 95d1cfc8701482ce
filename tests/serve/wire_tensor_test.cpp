#include <rlalgo/serve/wire_tensor.hpp>

#include <string>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using serve::Json;

namespace {

Json object(const std::string& dtype, const std::string& data) {
  return {{"name", "w"}, {"dtype", dtype}, {"shape", {2, 2}}, {"data", data}};
}

std::vector<float> values(const Json& json) {
  const auto [name, tensor] = serve::read_wire_tensor(json, "params[0]");
  CHECK(name == "w");
  CHECK(tensor.sizes().vec() == std::vector<std::int64_t>{2, 2});
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + 4};
}

}  // namespace

TEST_CASE("bytes are float32 or float16 by their count, bfloat16 where it is said") {
  // The example of axolotl's protocol: float16 1, -0.5, 0.25, 2 under the label bfloat16.
  CHECK(values(object("torch.bfloat16", "ADwAuAA0AEA=")) == std::vector<float>{1.0f, -0.5f, 0.25f, 2.0f});
  // 1, 2, 3, 4 as float32
  CHECK(values(object("float32", "AACAPwAAAEAAAEBAAACAQA==")) == std::vector<float>{1.0f, 2.0f, 3.0f, 4.0f});
  // bfloat16 1, -2, 0.5, 3
  Json real = object("bfloat16", "gD8AwAA/QEA=");
  real["wire_dtype"] = "bfloat16";
  CHECK(values(real) == std::vector<float>{1.0f, -2.0f, 0.5f, 3.0f});
}

TEST_CASE("values are rounded to the type that they are said to have") {
  // float16 1 + 2⁻¹⁰, which bfloat16 rounds to 1
  Json json = {{"name", "w"}, {"dtype", "torch.bfloat16"}, {"shape", {1}}, {"data", "ATw="}};
  CHECK(serve::read_wire_tensor(json, "p").second.item<float>() == 1.0f);
  json["dtype"] = "torch.float16";
  CHECK(serve::read_wire_tensor(json, "p").second.item<float>() == 1.0f + 0x1p-10f);
}

TEST_CASE("a tensor that contradicts itself is refused") {
  const auto refused = [](const Json& json) {
    return support::number_raised_by([&] { (void)serve::read_wire_tensor(json, "params[0]"); });
  };
  CHECK(refused(object("torch.int8", "ADwAuAA0AEA=")) == "serve.19");
  CHECK(refused(object("torch.float32", "ADwAuAA=")) == "serve.19");
  CHECK(refused(object("torch.float32", "not base64!")) == "serve.19");
  Json huge = object("torch.float32", "");
  huge["shape"] = {1 << 30, 1 << 30, 1 << 30};
  CHECK(refused(huge) == "serve.19");
  huge["shape"] = {-1};
  CHECK(refused(huge) == "serve.19");
  huge.erase("name");
  CHECK(refused(huge) == "serve.2");
}
