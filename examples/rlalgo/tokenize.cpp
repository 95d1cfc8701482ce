// What the model sees: texts and conversations as token ids.
//
//   rlalgo tokenize --model DIR [--no-special-tokens]
//
// In:  {"text": …} or {"messages": […], "add_generation_prompt": false, "tools": […], "chat_template_kwargs": {…}}
// Out: {"ids": […], "rendered": the text that was tokenized, "decoded": the ids as text, special tokens shown}
//
// Only the tokenizer's files of DIR are read.
#include "json_lines.hpp"

namespace rlalgo::cli {

int tokenize(const Arguments& arguments) {
  const Options options("tokenize", arguments, {{"model", ""}, {"lora-model-dir", ""}}, {"no-special-tokens"});
  const LineModel model = load_model(options, "tokenize", false);
  JsonLines lines;
  for (auto batch = lines.next(1); !batch.empty(); batch = lines.next(1)) {
    std::optional<std::string> rendered;
    const auto ids = prompt_ids(batch[0], model, "text", false, !options.flag("no-special-tokens"), &rendered);
    answer({{"ids", ids},
            {"rendered", rendered ? Json(*rendered) : Json(nullptr)},
            {"decoded", model.needed_tokenizer().decode(ids, false)}});
  }
  return 0;
}

}  // namespace rlalgo::cli
