#include <fstream>
#include <iterator>

#include <zlib.h>

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
