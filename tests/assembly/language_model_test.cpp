#include <support/catch.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include <rlalgo/assembly/language_model.hpp>

#include <support/scratch.hpp>

using namespace rlalgo;
namespace fs = std::filesystem;

namespace {
const fs::path quickstart = fs::path(rlalgo::support::test_dir).parent_path() / "examples" / "quickstart" / "model";

assembly::LanguageModelConfig run_with(const std::string& model) {
  assembly::LanguageModelConfig run;
  run.model.name = model;
  return run;
}
std::string bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
}  // namespace

TEST_CASE("a model directory gives decoder, tokenizer, template and end tokens") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(run_with(quickstart.string()));
  REQUIRE(model.chat_template);
  CHECK(model.stop_ids == std::vector<data::TokenId>{*model.tokenizer.eos_id()});
  const data::Json chat = {{{"role", "user"}, {"content", "How many pears?"}}};
  const auto ids = model.encode(chat);
  CHECK(model.tokenizer.decode(ids, false) == "<|im_start|>user\nHow many pears?<|im_end|>\n<|im_start|>assistant\n");
  CHECK(model.tokenizer.decode(model.encode("How many pears?"), false) == "How many pears?");
}

TEST_CASE("what was loaded is saved as a model directory of its own") {
  std::string name = (fs::temp_directory_path() / "rlalgo_lm_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  assembly::LanguageModelConfig run = run_with(quickstart.string());
  run.chat_template = "llama3";
  run.chat_template_jinja = std::nullopt;
  const assembly::LanguageModel model = assembly::LanguageModel::load(run);
  model.save(folder);
  CHECK(bytes(folder / "tokenizer.json") == bytes(quickstart / "tokenizer.json"));
  CHECK(bytes(folder / "chat_template.jinja") == model.chat_template->source());
  const assembly::LanguageModel again = assembly::LanguageModel::load(run_with(folder.string()));
  CHECK(again.chat_template->source() == model.chat_template->source());
  CHECK(again.decoder->named_tensors().front().second.equal(model.decoder->named_tensors().front().second));
  fs::remove_all(folder);
}

TEST_CASE("bfloat16 is computed with and saved when it is asked for") {
  std::string name = (fs::temp_directory_path() / "rlalgo_lm_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  assembly::LanguageModelConfig run = run_with(quickstart.string());
  CHECK(assembly::LanguageModel::load(run).decoder->dtype() == at::kFloat);
  run.bfloat16 = true;
  const assembly::LanguageModel model = assembly::LanguageModel::load(run);
  CHECK(model.decoder->dtype() == at::kBFloat16);
  CHECK(model.decoder->parameters().front().value.requires_grad());
  model.save(folder);
  CHECK(data::Json::parse(bytes(folder / "config.json"))["torch_dtype"] == "bfloat16");
  fs::remove_all(folder);
}

TEST_CASE("what others open has the dtype of the base, and an adapter no config.json; each has its card") {
  const rlalgo::support::ScratchDirectory scratch;
  assembly::LanguageModelConfig run = run_with(quickstart.string());
  CHECK(assembly::LanguageModel::load(run).output_dtype == model::SavedDtype::stored);
  run.save_as_computed = true;
  CHECK(assembly::LanguageModel::load(run).output_dtype == model::SavedDtype::computed);
  assembly::LanguageModel whole = assembly::LanguageModel::load(run);
  whole.card.method = "dpo";
  whole.save(scratch.path() / "whole", model::SavedDtype::stored);
  CHECK(data::Json::parse(bytes(scratch.path() / "whole/config.json"))["torch_dtype"] == "bfloat16");
  CHECK(bytes(scratch.path() / "whole/README.md").find("library_name: transformers") != std::string::npos);
  run.lora.emplace(model::LoraConfig{.target_modules = {"q_proj"}});
  const assembly::LanguageModel adapted = assembly::LanguageModel::load(run);
  adapted.save(scratch.path() / "adapter");
  CHECK_FALSE(fs::exists(scratch.path() / "adapter/config.json"));
  CHECK(bytes(scratch.path() / "adapter/README.md").find("library_name: peft") != std::string::npos);
  // It stands for its base with the adapter on it.
  const assembly::LanguageModel again = assembly::LanguageModel::load(run_with((scratch.path() / "adapter").string()));
  CHECK(again.decoder->adapter() != nullptr);
  CHECK(again.base_model == quickstart.string());
}

TEST_CASE("a model that is nowhere is config.20 and a chat without template config.21") {
  CHECK_THROWS_WITH(assembly::LanguageModel::load(run_with("no/such-model")), Catch::Contains("[rlalgo.config.20]"));
  assembly::LanguageModel model = assembly::LanguageModel::load(run_with(quickstart.string()));
  model.chat_template.reset();
  CHECK_THROWS_WITH(model.encode(data::Json::array({{{"role", "user"}, {"content", "x"}}})),
                    Catch::Contains("[rlalgo.config.21]"));
}

TEST_CASE("a model is loaded by its directory alone") {
  const assembly::LanguageModel model = assembly::LanguageModel::load(quickstart.string());
  CHECK(model.stop_ids == std::vector<data::TokenId>{*model.tokenizer.eos_id()});
  CHECK(model.decoder->config().vocab_size > 0);
  CHECK_FALSE(model.encode("How many pears?").empty());
  CHECK_THROWS_WITH(assembly::LanguageModel::load("/nowhere/at/all"), Catch::Matchers::Contains("[rlalgo.config.20]"));
}

TEST_CASE("special_tokens change roles, ends and what is saved; a new token needs a row of the embedding") {
  std::string name = (fs::temp_directory_path() / "rlalgo_lm_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  assembly::LanguageModelConfig run = run_with(quickstart.string());
  const assembly::LanguageModel plain = assembly::LanguageModel::load(run);
  const auto before = plain.generation_config->at("eos_token_id");
  run.tokens.roles["eos_token"] = "<|endoftext|>";
  run.tokens.extra = {"<|im_start|>"};
  const assembly::LanguageModel model = assembly::LanguageModel::load(run);
  const std::int32_t end = *plain.tokenizer.token_id("<|endoftext|>");
  REQUIRE(end != plain.tokenizer.eos_id());
  CHECK(model.tokenizer.eos_id() == end);
  CHECK(model.stop_ids == std::vector<data::TokenId>{*plain.tokenizer.eos_id(), end});
  CHECK(model.chat_template->special_tokens().get("eos_token") == "<|endoftext|>");
  CHECK(model.tokenizer.new_tokens().empty());
  CHECK(model.encode("How many pears?<|im_end|>") == plain.encode("How many pears?<|im_end|>"));
  model.save(folder);
  const data::Json ends = data::Json::parse(bytes(folder / "generation_config.json"))["eos_token_id"];
  CHECK(ends == data::Json({end, before.is_array() ? before[0] : before}));
  const assembly::LanguageModel again = assembly::LanguageModel::load(run_with(folder.string()));
  CHECK(again.tokenizer.eos_id() == end);
  CHECK(again.tokenizer.special_tokens().extra == std::vector<std::string>{"<|im_start|>"});
  CHECK(again.tokenizer.vocab_size() == plain.tokenizer.vocab_size());
  CHECK(again.encode("a<|im_start|>b") == plain.encode("a<|im_start|>b"));

  const auto rows = static_cast<std::size_t>(plain.decoder->config().vocab_size);
  const bool room = plain.tokenizer.vocab_size() < rows;
  run.tokens.tokens = {"<brand new>"};
  const auto half = [&] { return assembly::load_text_half(run, assembly::find_model(run.model, run.tokenizer)); };
  if (room) CHECK(half().tokenizer.new_tokens() == std::vector<std::string>{"<brand new>"});
  run.tokens.tokens.clear();
  for (std::size_t i = plain.tokenizer.vocab_size(); i <= rows; ++i)
    run.tokens.tokens.push_back("<new " + std::to_string(i) + ">");
  CHECK_THROWS_WITH(half(), Catch::Contains("[rlalgo.config.47]") && Catch::Contains(std::to_string(rows) + " rows"));
  fs::remove_all(folder);
}

TEST_CASE("added_tokens_overrides gives an added token another name, in every file") {
  std::string name = (fs::temp_directory_path() / "rlalgo_lm_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  assembly::LanguageModelConfig run = run_with(quickstart.string());
  const assembly::LanguageModel plain = assembly::LanguageModel::load(run);
  const std::int32_t id = *plain.tokenizer.token_id("<|im_start|>");
  run.tokens.renamed = {{id, "<|turn|>"}};
  const assembly::LanguageModel model = assembly::LanguageModel::load(run);
  CHECK(model.tokenizer.encode("<|turn|>") == std::vector<std::int32_t>{id});
  CHECK_FALSE(model.tokenizer.token_id("<|im_start|>"));
  model.save(folder);
  const assembly::LanguageModel again = assembly::LanguageModel::load(run_with(folder.string()));
  CHECK(again.tokenizer.encode("<|turn|>") == std::vector<std::int32_t>{id});
  CHECK(again.tokenizer.vocab_size() == plain.tokenizer.vocab_size());
  const auto half = [&] { return assembly::load_text_half(run, assembly::find_model(run.model, run.tokenizer)); };
  run.tokens.renamed = {{3, "<|turn|>"}};
  CHECK_THROWS_WITH(half(), Catch::Contains("[rlalgo.text.11]") && Catch::Contains("id 3"));
  run.tokens.renamed = {{id, "<|im_end|>"}};
  CHECK_THROWS_WITH(half(), Catch::Contains("[rlalgo.text.11]") && Catch::Contains("has that name"));
  fs::remove_all(folder);
}

TEST_CASE("texts and names are judged without the weights") {
  std::string name = (fs::temp_directory_path() / "rlalgo_lm_XXXXXX").string();
  const fs::path folder = ::mkdtemp(name.data());
  fs::copy(quickstart, folder, fs::copy_options::recursive);
  std::ofstream(folder / "model.safetensors") << "no weights";
  assembly::LanguageModelConfig run = run_with(folder.string());
  const auto half = [&] { return assembly::load_text_half(run, assembly::find_model(run.model, run.tokenizer)); };
  CHECK(half().decoder == nullptr);
  CHECK(half().max_positions > 0);
  CHECK(half().encode("How many pears?") ==
        assembly::LanguageModel::load(quickstart.string()).encode("How many pears?"));
  CHECK_THROWS_WITH(assembly::LanguageModel::load(run), Catch::Contains("[rlalgo.model."));
  run.unfrozen_parameters = {"model.norm"};
  CHECK_NOTHROW(half());
  run.unfrozen_parameters = {"model.nowhere"};
  CHECK_THROWS_WITH(half(), Catch::Contains("[rlalgo.model.23]") && Catch::Contains("model.nowhere"));
  run.unfrozen_parameters.clear();
  run.lora = model::LoraConfig{.target_modules = {"q_proj"}};
  CHECK_NOTHROW(half());
  run.lora->target_modules = {"no_proj"};
  CHECK_THROWS_WITH(half(), Catch::Contains("[rlalgo.model.23]") && Catch::Contains("no_proj"));
  fs::remove_all(folder);
}
