#include <support/catch.hpp>
#include <support/scratch.hpp>

#include <filesystem>
#include <string>

#include <rlalgo/assembly/load_documents.hpp>

using namespace rlalgo;
using support::lacks;
using support::raised_by;

namespace {

const std::filesystem::path quickstart =
    std::filesystem::path(support::test_dir).parent_path() / "examples" / "quickstart" / "model";

assembly::DocumentsConfig of(const support::ScratchDirectory& scratch, const std::string& rows, const char* type) {
  assembly::DocumentsConfig out;
  data::Dataset entry;
  entry.source.path = scratch.write("rows.jsonl", rows);
  entry.source.ds_type = "json";
  entry.type = type;
  entry.where = "c.yaml:4";
  out.train = {entry};
  out.shuffle = false;
  return out;
}

}  // namespace

TEST_CASE("texts become documents, packed where that is asked for") {
  const support::ScratchDirectory scratch;
  const assembly::LanguageModel model =
      assembly::load_text_half({.model = {quickstart.string()}}, assembly::find_model({quickstart.string()}));
  assembly::DocumentsConfig c =
      of(scratch, "{\"text\": \"1 2\"}\n{\"text\": \"3\"}\n{\"text\": \"1 2\"}\n", "ebft_pretrain.transform");
  const auto all = assembly::load_documents(c, model).train;
  REQUIRE(all.size() == 3);
  CHECK(all[0].ids == all[2].ids);
  CHECK(all[2].row == 2);
  c.deduplicate = true;
  CHECK(assembly::load_documents(c, model).train.size() == 2);
  c.deduplicate = false;
  c.pack = true;
  c.length = 64;
  const auto packed = assembly::load_documents(c, model).train;
  REQUIRE(packed.size() == 1);
  CHECK(packed[0].ids.size() == all[0].ids.size() + all[1].ids.size() + all[2].ids.size() + 3);
  CHECK(packed[0].texts.empty());
  c.apart = true;
  CHECK(assembly::load_documents(c, model).train.at(0).texts.size() == 3);
}

TEST_CASE("what makes no documents, or cannot be packed, is named with its place") {
  const support::ScratchDirectory scratch;
  const assembly::LanguageModel model =
      assembly::load_text_half({.model = {quickstart.string()}}, assembly::find_model({quickstart.string()}));
  const auto refused = [&](const assembly::DocumentsConfig& c) {
    return raised_by([&] { (void)assembly::load_documents(c, model); });
  };
  const std::string row = "{\"prompt\": \"1 + 1 =\", \"completion\": \" 2\"}\n";
  CHECK(lacks(refused(of(scratch, row, "chatml.intel")), {"config.34", "ebft_pretrain.transform", "c.yaml:4"}) == "");
  assembly::DocumentsConfig pairs = of(scratch, row, "ebft_strided_structured.transform");
  CHECK(assembly::load_documents(pairs, model).train.at(0).prompt_length.has_value());
  pairs.pack = true;
  CHECK(lacks(refused(pairs), {"config.8", "ebft.pack_documents"}) == "");
}
