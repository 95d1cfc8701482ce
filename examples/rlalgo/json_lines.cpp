#include "json_lines.hpp"

#include <utility>

#include <rlalgo/core/bounded_json.hpp>

namespace rlalgo::cli {

std::vector<JsonLines::Line> JsonLines::next(std::size_t most) {
  std::vector<Line> out;
  std::string text;
  while (out.size() < most && (out.empty() || std::cin.rdbuf()->in_avail() > 0) && std::getline(std::cin, text)) {
    ++number_;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    auto [object, problem] = core::read_json<Json>(text);
    Line line{number_, std::move(object)};
    if (problem.beyond_limit) wrong_line(line, "a line holds " + problem.text, "less");
    if (!line.object.is_object()) wrong_line(line, "a line is not a JSON object", "{\"key\": value, …}");
    out.push_back(std::move(line));
  }
  return out;
}

void wrong_line(const JsonLines::Line& line, const std::string& what, const std::string& expected) {
  core::raise("cli", 11, {.what = what, .expected = expected, .where = line.where()});
}

void add_model_options(CLI::App& app, ModelOptions& options) {
  app.add_option("--model", options.model, "a Hugging Face directory, or an id in the local cache")->type_name("DIR");
  app.add_option("--lora-model-dir", options.lora_model_dir, "an adapter for it (PEFT)")->type_name("DIR");
}

LineModel load_model(const ModelOptions& options, const std::string& verb, bool weights) {
  if (options.model.empty()) core::raise_usage("cli", 12, {.what = "`rlalgo " + verb + "` needs --model DIR"});
  config::RunConfig run;
  run.base_model = options.model;
  if (!options.lora_model_dir.empty()) run.lora_model_dir = options.lora_model_dir;
  LineModel out{.places = config::find_model(run)};
  const std::filesystem::path& directory = out.places.tokenizer;
  if (!weights || std::filesystem::exists(directory / "tokenizer.json"))
    out.tokenizer = text::Tokenizer::from_directory(directory);
  out.chat_template = text::ChatTemplate::from_directory(directory);
  if (weights) {
    out.decoder = config::load_decoder(run, out.places);
    out.stop_ids = config::stop_ids(out.places.base, out.tokenizer ? &*out.tokenizer : nullptr);
  }
  return out;
}

const text::Tokenizer& LineModel::needed_tokenizer() const {
  if (tokenizer) return *tokenizer;
  text::Tokenizer::raise_missing(places.tokenizer);
}

namespace {

std::vector<data::TokenId> given_ids(const JsonLines::Line& line, const Json& list, std::int64_t vocabulary) {
  std::vector<data::TokenId> ids;
  if (!list.is_array()) wrong_line(line, "ids is no list", "a list of token ids");
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<std::int64_t>() < 0 || id.get<std::int64_t>() >= vocabulary)
      wrong_line(line, "ids holds something that is no token id: " + id.dump(),
                 "0 to " + std::to_string(vocabulary - 1));
    ids.push_back(id.get<data::TokenId>());
  }
  return ids;
}

}  // namespace

std::vector<data::TokenId> prompt_ids(const JsonLines::Line& line, const LineModel& model, const std::string& text_key,
                                      bool generation_prompt, bool special_tokens,
                                      std::optional<std::string>* rendered) {
  const Json& object = line.object;
  const int ways = static_cast<int>(object.contains("ids")) + static_cast<int>(object.contains("messages")) +
                   static_cast<int>(object.contains(text_key));
  if (ways != 1) wrong_line(line, "a line needs one of ids, messages and " + text_key, "exactly one");
  if (object.contains("ids"))
    return given_ids(line, object["ids"],
                     model.decoder ? model.decoder->config().vocab_size
                                   : static_cast<std::int64_t>(model.needed_tokenizer().vocab_size()));
  if (object.contains(text_key)) {
    if (!object[text_key].is_string()) wrong_line(line, text_key + " is not a text", "a string");
    const std::string text = object[text_key].get<std::string>();
    if (rendered != nullptr) *rendered = text;
    return model.needed_tokenizer().encode(text, special_tokens);
  }
  if (!model.chat_template)
    core::raise("cli", 13,
                {.what = "messages need a chat template, and the model has none",
                 .where = line.where(),
                 .remedy = "put chat_template.jinja into the model's directory"});
  text::ChatOptions chat{.add_generation_prompt = object.value("add_generation_prompt", generation_prompt),
                         .continue_final_message = object.value("continue_final_message", false)};
  if (object.contains("tools")) chat.tools = object["tools"];
  if (object.contains("chat_template_kwargs") && object["chat_template_kwargs"].is_object())
    chat.kwargs = object["chat_template_kwargs"];
  const std::string text = model.chat_template->render(object["messages"], chat);
  if (rendered != nullptr) *rendered = text;
  return model.needed_tokenizer().encode(text, false);
}

void answer(const Json& object) {
  std::cout << object.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  require_output();
}

}  // namespace rlalgo::cli
