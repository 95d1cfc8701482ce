// What the model sees: texts and conversations as token ids. Only the tokenizer's files of DIR are read.
#include "json_lines.hpp"

namespace rlalgo::cli {

namespace {

int tokenize_lines(const ModelOptions& options, bool special_tokens) {
  const LineModel model = load_model(options, "tokenize", false);
  return answer_each([&](const Line& line, Answers::Turn& turn) {
    require_known(line, {"text", "ids", "messages", "add_generation_prompt", "continue_final_message", "tools",
                         "documents", "chat_template_kwargs"});
    std::optional<std::string> rendered;
    const auto ids = prompt_ids(line, model, "text", false, special_tokens, &rendered);
    turn.add({{"ids", ids},
              {"rendered", rendered ? Json(*rendered) : Json(nullptr)},
              {"decoded", model.needed_tokenizer().decode(ids, false)}});
  });
}

}  // namespace

Run tokenize(CLI::App& app) {
  const auto options = std::make_shared<ModelOptions>();
  const auto plain = std::make_shared<bool>(false);
  add_model_options(app, *options);
  app.add_flag("--no-special-tokens", *plain, "no begin- or end-of-text token around a text");
  app.footer(R"(
reads JSON lines:  {"text": …}, {"ids": […]}, or {"messages": […], "add_generation_prompt": false, "tools": […],
                   "documents": […], "chat_template_kwargs": {…}}
writes:            {"ids": […], "rendered": the text that was tokenized, "decoded": the ids as text, special tokens shown},
                   in the order of the input. A line that is wrong: {"error": text, "index": line}, exit status 1)");
  return [options, plain] { return tokenize_lines(*options, !*plain); };
}

}  // namespace rlalgo::cli
