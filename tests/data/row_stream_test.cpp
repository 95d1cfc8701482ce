#include <fstream>
#include <iterator>

#include <dlfcn.h>
#include <zlib.h>

#include <support/not_run.hpp>
#include <support/scratch.hpp>

#include <rlalgo/data/load.hpp>
#include <rlalgo/data/row_stream.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

namespace {

std::string numbered(int from, int to) {
  std::string out;
  for (int i = from; i < to; ++i) out += "{\"n\": " + std::to_string(i) + "}\n";
  return out;
}

void write_gzip(const std::string& path, const std::string& text, const char* mode = "wb") {
  gzFile file = ::gzopen(path.c_str(), mode);
  ::gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
  ::gzclose(file);
}

std::vector<int> numbers(DatasetSource source, std::size_t chunk) {
  RowStream rows(std::move(source));
  std::vector<int> out;
  for (std::vector<Record> records; rows.next(chunk, records);) {
    CHECK(records.size() <= chunk);
    for (Record& record : records) {
      parse(record);
      out.push_back(record.value["n"].get<int>());
    }
  }
  return out;
}

}  // namespace

TEST_CASE("chunks end anywhere; files of a split follow each other; bounds count over all of them") {
  const ScratchDirectory scratch;
  scratch.write("d/train-0.jsonl", numbered(0, 5));
  scratch.write("d/train-1.json", "[{\"n\": 5}, {\"n\": 6}]");
  scratch.write("d/test.csv", "n\n7\n8\n");
  DatasetSource source;
  source.path = (scratch.path() / "d").string();
  for (const std::size_t chunk : {1U, 2U, 3U, 100U}) {
    source.split = "";
    CHECK(numbers(source, chunk) == std::vector<int>{0, 1, 2, 3, 4, 5, 6});
    source.split = "train[4:6]+test+train[:1]";
    CHECK(numbers(source, chunk) == std::vector<int>{4, 5, 7, 8, 0});
  }
  source.split = "train[7:]";
  CHECK(lacks(raised_by([&] { (void)numbers(source, 2); }), {"data.5: ", "train[7:]"}) == "");
  source.split = "dev";
  CHECK(lacks(raised_by([&] { (void)numbers(source, 2); }), {"data.7: ", "\"dev\""}) == "");
}

TEST_CASE("gzip files are read as what they hold, several members too") {
  const ScratchDirectory scratch;
  const std::string path = (scratch.path() / "rows.jsonl.gz").string();
  write_gzip(path, numbered(0, 3));
  write_gzip(path, numbered(3, 5), "ab");
  DatasetSource source;
  source.path = path;
  CHECK(numbers(source, 2) == std::vector<int>{0, 1, 2, 3, 4});
  source.split = "train[-1:]";
  CHECK(numbers(source, 2) == std::vector<int>{4});
  const std::string table = (scratch.path() / "rows.csv.gz").string();
  write_gzip(table, "n\n1\n2\n");
  source = {};
  source.path = table;
  CHECK(numbers(source, 2) == std::vector<int>{1, 2});
}

namespace {

// One frame of Zstandard.
std::string zstd_frame(const std::string& text) {
  void* const library = ::dlopen("libzstd.so.1", RTLD_NOW);
  rlalgo::support::needs(library != nullptr, "no libzstd.so.1");
  using Compress = std::size_t (*)(void*, std::size_t, const void*, std::size_t, int);
  const auto compress = reinterpret_cast<Compress>(::dlsym(library, "ZSTD_compress"));
  std::string out(text.size() + 1024, '\0');
  out.resize(compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

}  // namespace

TEST_CASE("zstd files are read as what they hold, several frames too; damage is data.28") {
  const ScratchDirectory scratch;
  const std::string first = zstd_frame(numbered(0, 40000)), second = zstd_frame(numbered(40000, 60000));
  DatasetSource source;
  source.path = scratch.write("rows.jsonl.zst", first + second);
  const std::vector<int> all = numbers(source, 1000);
  REQUIRE(all.size() == 60000);
  for (int i = 0; i < 60000; ++i)
    if (all[static_cast<std::size_t>(i)] != i) FAIL(i);
  source.split = "train[-2:]";
  CHECK(numbers(source, 2) == std::vector<int>{59998, 59999});
  source.split = "";
  source.path = scratch.write("one.json.zst", zstd_frame("[{\"n\": 1}, {\"n\": 2}]"));
  CHECK(numbers(source, 2) == std::vector<int>{1, 2});
  source.path = scratch.write("rows.csv.zst", zstd_frame("n\n7\n"));
  CHECK(numbers(source, 2) == std::vector<int>{7});
  const auto raised = [&](const std::string& bytes) {
    source.path = scratch.write("bad.jsonl.zst", bytes);
    return raised_by([&] { (void)numbers(source, 1000); });
  };
  CHECK(lacks(raised(first.substr(0, first.size() - 1)), {"data.28: ", "ends too early", "zstd -t"}) == "");
  CHECK(lacks(raised(first + second.substr(0, 9)), {"data.28: ", "ends too early"}) == "");
  CHECK(lacks(raised(first + "no frame at all"), {"data.28: "}) == "");
  std::string flipped = first;
  flipped[4] = static_cast<char>(flipped[4] | 0x08);  // the reserved bit of the frame's header
  CHECK(lacks(raised(flipped), {"data.28: "}) == "");
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += std::string(std::size_t{1} << 20U, 'x') + "\n";
  source.path = scratch.write("bomb.txt.zst", zstd_frame(lines));
  CHECK(lacks(raised_by([&] {
                RowStream rows(source);
                for (std::vector<Record> records; rows.next(10, records);) continue;
              }),
              {"data.30: ", "unzstd"}) == "");
}

TEST_CASE("a gzip file that ends too early, or is damaged, is data.28") {
  const ScratchDirectory scratch;
  const std::string path = (scratch.path() / "rows.jsonl.gz").string();
  write_gzip(path, numbered(0, 20000));
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  DatasetSource source;
  source.path = path;
  std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  CHECK(lacks(raised_by([&] { (void)load(source); }), {"data.28: ", "ends too early", "gzip -t"}) == "");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x55);
  std::ofstream(path, std::ios::binary) << bytes;
  CHECK(lacks(raised_by([&] { (void)load(source); }), {"data.28: "}) == "");
}

TEST_CASE("lines longer than the reading buffer") {
  const ScratchDirectory scratch;
  const std::string longest(600000, 'x');
  DatasetSource source;
  source.path = scratch.write("rows.jsonl", "{\"a\": \"" + longest + "\"}\n{\"a\": \"y\"}");
  const Table table = load(source);
  REQUIRE(table.size() == 2);
  CHECK(table.row(0)["a"] == longest);
  CHECK(table.row(1)["a"] == "y");
}
