// Post-processors: which special tokens stand before and after the tokens of one text.
//
// Supported types: ByteLevel (none), TemplateProcessing, Sequence, BertProcessing and RobertaProcessing, for one
// sequence; the pair templates are not used.
//
// Errors: [rlalgo.text.3] another type. [rlalgo.text.5] a template that names a special token without ids.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/detail/pre_tokenizer.hpp>

namespace rlalgo::text::detail {

class PostProcessor {
 public:
  using Ids = std::vector<std::int32_t>;

  PostProcessor() = default;
  explicit PostProcessor(const Json& spec) { add(spec); }
  PostProcessor(Ids before, Ids after) : before_(std::move(before)), after_(std::move(after)) {}

  [[nodiscard]] const Ids& before() const noexcept { return before_; }
  [[nodiscard]] const Ids& after() const noexcept { return after_; }

 private:
  void add(const Json& spec) {
    if (spec.is_null()) return;
    const std::string type = spec.value("type", "");
    if (type == "ByteLevel") return;
    if (type == "Sequence") {
      for (const Json& part : spec.at("processors")) add(part);
    } else if (type == "TemplateProcessing") {
      Ids before, after;
      bool seen = false;
      for (const Json& piece : spec.at("single")) {
        if (piece.contains("Sequence")) {
          seen = true;
          continue;
        }
        const std::string name = piece.at("SpecialToken").at("id").get<std::string>();
        const Json& tokens = spec.at("special_tokens");
        if (!tokens.contains(name)) {
          core::raise("text", 5,
                      {.what = "the post-processor names a special token that it does not define",
                       .found = "'" + name + "'",
                       .expected = "an entry in special_tokens",
                       .where = "post_processor in tokenizer.json"});
        }
        for (const Json& id : tokens.at(name).at("ids")) (seen ? after : before).push_back(id.get<std::int32_t>());
      }
      surround(before, after);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      surround({spec.at("cls").at(1).get<std::int32_t>()}, {spec.at("sep").at(1).get<std::int32_t>()});
    } else {
      refuse_component("post_processor", type,
                       "Sequence, ByteLevel, TemplateProcessing, BertProcessing or RobertaProcessing");
    }
  }

  // Later processors go around earlier ones.
  void surround(const Ids& before, const Ids& after) {
    before_.insert(before_.begin(), before.begin(), before.end());
    after_.insert(after_.end(), after.begin(), after.end());
  }

  Ids before_, after_;
};

}  // namespace rlalgo::text::detail
