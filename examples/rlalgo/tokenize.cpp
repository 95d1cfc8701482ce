// What the model sees: texts and conversations as token ids.
//
//   rlalgo tokenize --model DIR [--no-special-tokens]
//
// In:  {"text": …} or {"messages": […], "add_generation_prompt": false, "tools": […], "chat_template_kwargs": {…}}
// Out: {"ids": […], "rendered": the text that was tokenized, "decoded": the ids as text, special tokens shown}
#include "json_lines.hpp"

namespace rlalgo::cli {

int tokenize(const Arguments& arguments) {
  const Options options("tokenize", arguments, {{"model", ""}, {"lora-model-dir", ""}}, {"no-special-tokens"});
  const config::LanguageModel model = load_model(options, "tokenize");
  JsonLines lines;
  for (auto batch = lines.next(1); !batch.empty(); batch = lines.next(1)) {
    std::optional<std::string> rendered;
    const auto ids = prompt_ids(batch[0], model, "text", false, !options.flag("no-special-tokens"), &rendered);
    answer({{"ids", ids},
            {"rendered", rendered ? Json(*rendered) : Json(nullptr)},
            {"decoded", model.tokenizer.decode(ids, false)}});
  }
  return 0;
}

}  // namespace rlalgo::cli
