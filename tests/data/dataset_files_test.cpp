#include <support/scratch.hpp>

#include <rlalgo/data/dataset_files.hpp>

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
  CHECK(lacks(raised_by([] { (void)detail::format_of("x.parquet", "", true); }),
              {"data.6: ", "load_dataset('parquet'"}) == "");
}

TEST_CASE("a directory of compressed and delimited files") {
  const ScratchDirectory scratch;
  scratch.write("d/train-0.jsonl.gz", "");
  scratch.write("d/train-1.csv", "");
  scratch.write("d/test.tsv", "");
  scratch.write("d/dataset_info.json", "{}");
  scratch.write("d/.hidden.jsonl", "");
  DatasetSource source;
  source.path = (scratch.path() / "d").string();
  const detail::SplitFiles files = detail::files_of(source);
  REQUIRE(files.size() == 2);
  CHECK(files.at("train").size() == 2);
  CHECK(files.at("test").size() == 1);
  source.ds_type = "csv";
  CHECK(detail::files_of(source).at("train").size() == 1);
}
