#include <sys/stat.h>

#include <rlalgo/model/safetensors.hpp>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;

namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream out;
  out << stream.rdbuf();
  return out.str();
}

std::string with_length(std::uint64_t length, const std::string& rest) {
  std::string out;
  for (unsigned i = 0; i < 8; ++i) out += static_cast<char>(length >> (8 * i));
  return out + rest;
}

// A file with this header and `bytes` bytes of data.
std::string file_of(const std::string& header, std::size_t bytes) {
  return with_length(header.size(), header + std::string(bytes, '\0'));
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, int begin, int end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

}  // namespace

TEST_CASE("a written file has the bytes of the Python library") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto path = scratch.path() / "a.safetensors";
  // Wider dtypes first, then by name; header padded to a multiple of 8 with spaces.
  model::write_safetensors(path, {{"b", at::tensor({1.0F, 2.0F})},
                                  {"a", at::tensor({std::int64_t{3}})},
                                  {"c", at::tensor({7}, at::kByte)},
                                  {"a2", at::tensor({-1.0F}).to(at::kBFloat16)}});
  const std::string header =
      "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},\"b\":{"
      "\"dtype\":"
      "\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},\"a2\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[16,18]"
      "},\"c\":{"
      "\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[18,19]}}";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string data("\3\0\0\0\0\0\0\0\0\0\x80\x3f\0\0\0\x40\x80\xbf\7", 19);
  CHECK(read_file(path) == with_length(padded.size(), padded + data));
  std::size_t files = 0;
  for (const auto& item : std::filesystem::directory_iterator(scratch.path())) files += item.exists() ? 1 : 0;
  CHECK(files == 1);  // no temporary name is left
}

TEST_CASE("every dtype, layout and shape comes back as it was written") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto path = scratch.path() / "a.safetensors";
  std::vector<model::NamedTensor> tensors;
  for (const auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf, at::kBFloat16,
                          at::kFloat, at::kDouble})
    tensors.emplace_back(c10::toString(type), at::arange(6).view({2, 3}).to(type));
  tensors.emplace_back("transposed", at::arange(6, at::kFloat).view({2, 3}).t());
  tensors.emplace_back("scalar", at::full({}, 3.5));
  tensors.emplace_back("empty", at::empty({0, 4}));
  tensors.emplace_back("trained", at::ones({2}).requires_grad_());
  model::write_safetensors(path, tensors, {{"step", "12"}});
  const auto back = model::read_safetensors(path);
  CHECK(back.size() == tensors.size());
  for (const auto& [name, value] : tensors) {
    REQUIRE(back.contains(name));
    CHECK(back.at(name).scalar_type() == value.scalar_type());
    CHECK(back.at(name).equal(value));
    CHECK_FALSE(back.at(name).requires_grad());
  }
  const model::SafetensorsFile file(path);
  CHECK(file.metadata().at("step") == "12");
  CHECK(lacks(raised_by([&] { (void)file.read("nobody"); }), {"model.6", "nobody", "a.safetensors"}) == "");
}

TEST_CASE("the same tensors give the same bytes, in whatever order they come") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto x = at::randn({3}), y = at::randn({2, 2});
  model::write_safetensors(scratch.path() / "1", {{"x", x}, {"y", y}});
  model::write_safetensors(scratch.path() / "2", {{"y", y}, {"x", x}});
  CHECK(read_file(scratch.path() / "1") == read_file(scratch.path() / "2"));
}

TEST_CASE("damaged files are refused by number, with file and tensor") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto error = [&](const std::string& bytes) {
    const std::string path = scratch.write("bad.safetensors", bytes);
    const std::string text = raised_by([&] { (void)model::read_safetensors(path); });
    CHECK((text == "nothing" || text.find(path) != std::string::npos));
    return text;
  };
  const std::string good = entry("w", "F32", "[2,2]", 0, 16);
  CHECK(error(file_of("{" + good + "}", 16)) == "nothing");
  CHECK(error(file_of("{}", 0)) == "nothing");

  CHECK(lacks(error(""), {"model.2", "0 bytes"}) == "");
  CHECK(lacks(error("abc"), {"model.2"}) == "");
  CHECK(lacks(error(with_length(1000, "{}")), {"model.2", "1000 bytes"}) == "");
  CHECK(lacks(error(with_length(0xFFFFFFFFFFFFFFFFULL, "{}")), {"model.2"}) == "");
  CHECK(lacks(error(with_length(0, "{}")), {"model.2"}) == "");
  CHECK(lacks(error(file_of("<html>", 16)), {"model.3", "not JSON"}) == "");
  CHECK(lacks(error(file_of("[1,2]", 16)), {"model.3", "array"}) == "");
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  CHECK(lacks(error(file_of("{\"w\":" + deep + "}", 16)), {"model.3", "200 levels"}) == "");
  std::string wide = "{" + good;
  for (int i = 0; i < 200000; ++i) wide += ",\"t" + std::to_string(i) + "\":{}";
  CHECK(lacks(error(file_of(wide + "}", 16)), {"model.3", "20000 members"}) == "");
  CHECK(lacks(error(file_of("{\"w\":{\"dtype\":\"F32\",\"shape\":[4]}}", 16)), {"model.3", "tensor w"}) == "");
  CHECK(lacks(error(file_of("{" + entry("w", "F32", "[-4]", 0, 16) + "}", 16)), {"model.3", "tensor w"}) == "");
  CHECK(lacks(error(file_of("{" + entry("w", "F32", "[4]", -1, 16) + "}", 16)), {"model.3", "tensor w"}) == "");
  CHECK(lacks(error(file_of("{\"__metadata__\":{\"a\":1},\"w\":3}", 16)), {"model.3", "metadata"}) == "");
  CHECK(lacks(error(file_of("{" + good + "," + good + "}", 16)), {"model.3", "described twice", "w"}) == "");
  CHECK(lacks(error(file_of("{" + entry("w", "F8_E4M3", "[4]", 0, 4) + "}", 4)), {"model.4", "F8_E4M3", "tensor w"}) ==
        "");

  CHECK(lacks(error(file_of("{" + good + "}", 15)), {"model.5", "outside the file", "tensor w"}) == "");  // truncated
  CHECK(lacks(error(file_of("{" + good + "}", 17)), {"model.5", "after the last"}) == "");
  CHECK(lacks(error(file_of("{" + entry("w", "F32", "[4]", 16, 0) + "}", 16)), {"model.5", "tensor w"}) == "");
  CHECK(lacks(error(file_of("{" + entry("w", "F32", "[3]", 0, 16) + "}", 16)),
              {"model.5", "do not match", "tensor w"}) == "");
  CHECK(lacks(error(file_of("{" + entry("w", "F32", "[4611686018427387904,4]", 0, 16) + "}", 16)),
              {"model.5", "tensor w"}) == "");
  CHECK(lacks(error(file_of("{" + entry("w", "F32", "[0,18446744073709551615]", 0, 0) + "}", 0)),
              {"model.3", "tensor w"}) == "");
  CHECK(lacks(error(file_of("{" + good + "," + entry("z", "F32", "[1]", 12, 16) + "}", 16)),
              {"model.5", "overlap", "tensor z"}) == "");
  CHECK(lacks(error(file_of("{" + good + "," + entry("z", "F32", "[1]", 20, 24) + "}", 24)),
              {"model.5", "no tensor", "tensor z"}) == "");

  CHECK(lacks(raised_by([&] { (void)model::read_safetensors(scratch.path() / "none"); }),
              {"model.1", "No such file"}) == "");
  CHECK(lacks(raised_by([&] { (void)model::read_safetensors(scratch.path()); }), {"model.1", "directory"}) == "");
  REQUIRE(::mkfifo((scratch.path() / "fifo").c_str(), 0600) == 0);
  CHECK(lacks(raised_by([&] { (void)model::read_safetensors(scratch.path() / "fifo"); }),
              {"model.1", "a named pipe"}) == "");
  CHECK(lacks(raised_by([&] { (void)model::read_safetensors("/dev/zero"); }), {"model.1", "a device"}) == "");
}

TEST_CASE("every prefix of a file is refused") {
  const rlalgo::support::ScratchDirectory scratch;
  model::write_safetensors(scratch.path() / "a", {{"x", at::ones({3})}, {"y", at::ones({2}, at::kHalf)}});
  const std::string bytes = read_file(scratch.path() / "a");
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    const std::string path = scratch.write("cut", bytes.substr(0, n));
    CHECK(raised_by([&] { (void)model::read_safetensors(path); }).starts_with("model."));
  }
}

TEST_CASE("a tensor that cannot be written leaves no file") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto path = scratch.path() / "a";
  CHECK(lacks(raised_by([&] {
                model::write_safetensors(path, {{"z", at::zeros({2}, at::kComplexFloat)}});
              }),
              {"model.4", "z"}) == "");
  CHECK(lacks(raised_by([&] {
                model::write_safetensors(path, {{"z", at::zeros({2})}, {"z", at::zeros({2})}});
              }),
              {"model.3"}) == "");
  CHECK(std::filesystem::is_empty(scratch.path()));
}

TEST_CASE("mapped tensors share the file's memory, and writing to them leaves the file alone") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto path = scratch.path() / "m.safetensors";
  const auto a = at::arange(6, at::kFloat).view({2, 3}), b = at::arange(5, at::kFloat).to(at::kBFloat16);
  model::write_safetensors(path, {{"a", a}, {"b", b}, {"none", at::empty({0, 4}, at::kFloat)}});
  at::Tensor first, second, other;
  {
    const model::SafetensorsFile file(path);
    first = file.map("a");
    second = file.map("a");
    other = file.convert("b", at::kFloat);
    CHECK(first.const_data_ptr() == second.const_data_ptr());
    CHECK(file.convert("a", at::kFloat).const_data_ptr() == first.const_data_ptr());
    CHECK(file.map("none").sizes() == at::IntArrayRef{0, 4});
    CHECK(file.map("b").equal(b));
  }
  CHECK(first.equal(a));  // the file object is gone, the memory is not
  CHECK(other.equal(b.to(at::kFloat)));
  first.add_(1);
  CHECK(second.equal(a + 1));
  CHECK(model::read_safetensors(path).at("a").equal(a));
  std::filesystem::remove(path);
  CHECK(second.equal(a + 1));
}

TEST_CASE("tensors that are made when they are written give the same bytes") {
  const rlalgo::support::ScratchDirectory scratch;
  const auto a = at::randn({3, 2}), b = at::randn({4});
  model::write_safetensors(scratch.path() / "one", std::vector<model::NamedTensor>{{"a", a}, {"b", b}});
  int alive = 0;
  std::vector<model::PendingTensor> pending;
  for (const auto& [name, value] : std::vector<model::NamedTensor>{{"b", b}, {"a", a}})
    pending.push_back({name, at::kFloat, value.sizes().vec(), [&alive, value = value] { return ++alive, value; }});
  model::write_pending_safetensors(scratch.path() / "two", pending);
  CHECK(alive == 2);
  const auto bytes = [&](const char* name) {
    std::ifstream in(scratch.path() / name, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  CHECK(bytes("one") == bytes("two"));
}

TEST_CASE("bytes in memory are those of a file, and are read as one") {
  const rlalgo::support::ScratchDirectory scratch;
  const std::vector<model::NamedTensor> tensors = {
      {"a", at::randn({3, 2}).t()}, {"b", at::randn({5}).to(at::kBFloat16)}, {"none", at::empty({0, 4}, at::kFloat)}};
  model::write_safetensors(scratch.path() / "a", tensors, {{"session", "x"}});
  std::string bytes = model::safetensors_bytes(tensors, {{"session", "x"}});
  CHECK(bytes == read_file(scratch.path() / "a"));
  const model::SafetensorsFile file(std::as_bytes(std::span(bytes)), "a body");
  CHECK(file.metadata().at("session") == "x");
  const at::Tensor mapped = file.map("a"), converted = file.convert("b", at::kFloat), read = file.read("b");
  const std::string kept = std::exchange(bytes, std::string(bytes.size(), 'x'));  // the same place
  CHECK(mapped.equal(tensors[0].second));
  CHECK(converted.equal(tensors[1].second.to(at::kFloat)));
  CHECK(read.equal(tensors[1].second));
  for (std::size_t size = 0; size < kept.size(); ++size)
    CHECK(raised_by([&] {
            const model::SafetensorsFile cut(std::as_bytes(std::span(kept).first(size)), "a body");
          }).find("a body") != std::string::npos);
}
