#include <support/scratch.hpp>

#include <rlalgo/data/dataset_source.hpp>

using namespace rlalgo::data;
using rlalgo::support::lacks;
using rlalgo::support::raised_by;
using rlalgo::support::ScratchDirectory;

TEST_CASE("a format is told by the extension before .gz, or by ds_type") {
  CHECK(detail::format_of("a/x.jsonl", "", true) == "json");
  CHECK(detail::format_of("a/x.json.gz", "", true) == "json");
  CHECK(detail::format_of("a/X.CSV", "", true) == "csv");
  CHECK(detail::format_of("a/x.tsv.gz", "", true) == "tsv");
  CHECK(detail::format_of("a/x.tsv", "csv", true) == "tsv");
  CHECK(detail::format_of("a/x.txt.gz", "", true) == "text");
  CHECK(detail::format_of("a/x", "", true) == "json");
  CHECK(detail::format_of("a/x", "", false).empty());
  CHECK(detail::format_of("a/x.gz", "", false).empty());
  CHECK(detail::format_of("a/x.jsonl.zst", "", true) == "json");
  CHECK(detail::format_of("a/x.parquet", "", true) == "parquet");
  CHECK(detail::format_of("a/x.bin", "parquet", true) == "parquet");
  CHECK(detail::format_of("a/x.arrow", "", false) == "arrow");
  CHECK(lacks(raised_by([] { (void)detail::format_of("x.xz", "", true); }), {"data.6: ", "unxz"}) == "");
}

TEST_CASE("patterns: within a name, and at any depth") {
  const ScratchDirectory scratch;
  for (const char* file : {"b.jsonl", "a.jsonl", "x/y/c.jsonl", "x/.hidden/d.jsonl"}) scratch.write(file, "");
  const auto count = [&](const std::string& pattern) {
    return detail::expand_pattern((scratch.path() / pattern).string()).size();
  };
  CHECK(detail::is_pattern("a*") == true);
  CHECK(detail::is_pattern("a/b.json") == false);
  CHECK(count("*.jsonl") == 2);
  CHECK(count("**/*.jsonl") == 3);
  CHECK(count("x/**") == 1);
  CHECK(count("[b-z].jsonl") == 1);
}
