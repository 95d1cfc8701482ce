#include <support/scratch.hpp>

#include <rlalgo/data/dataset_files.hpp>

using namespace rlalgo::data;
using rlalgo::support::ScratchDirectory;

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
