// README.md of a model's directory: the card that the Hugging Face hub, PEFT and people read.
//
//   front matter   base_model, library_name (peft, transformers), pipeline_tag, tags, datasets
//   text           what it was trained from and how, a quick start, the settings, versions
//
// The keys and tags are those of PEFT 0.21 (PeftModel.create_or_update_model_card: base_model:adapter:…, lora, transformers) and of
// TRL 1.16 and axolotl 0.19 (generated_from_trainer, the method's name). There is no date and no path of the output in it: a
// resumed run writes the same bytes wherever it goes on.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlalgo::run {

inline constexpr const char* model_card_file = "README.md";

struct ModelCard {
  std::string base_model;                                     // a directory or an id, as it was named
  bool adapter = false;                                       // a PEFT adapter over it, else a whole model
  std::string method;                                         // of the training (dpo); empty: none is named
  std::string summary;                                        // of the method, a clause
  bool merged = false;                                        // an adapter was added to the base
  std::vector<std::string> datasets;                          // ids on the hub
  std::vector<std::pair<std::string, std::string>> settings;  // of the training, in the order of the card
};

// A YAML scalar of a text: as it is where YAML reads that text from it, else in quotation marks.
[[nodiscard]] std::string yaml_scalar(const std::string& text);

// The whole file.
[[nodiscard]] std::string to_text(const ModelCard& card);

// Whether a README.md is such a card, of whatever trainer: its front matter has the tag generated_from_trainer, or names peft.
[[nodiscard]] bool is_generated_card(std::string_view text);

}  // namespace rlalgo::run

#ifndef RLALGO_COMPILED
#include <rlalgo/run/detail/model_card_impl.hpp>
#endif
