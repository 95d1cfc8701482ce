#include <support/catch.hpp>

#include <rlalgo/data/dataset.hpp>

using namespace rlalgo::data;

TEST_CASE("a dataset has a chat template of its own where it names one or holds one") {
  Dataset dataset;
  CHECK_FALSE(dataset.has_template());
  CHECK(dataset.shard.whole());
  dataset.chat_template = "chatml";
  CHECK(dataset.has_template());
  Dataset written;
  written.chat_template_jinja = "{{ messages }}";
  CHECK(written.has_template());
}
