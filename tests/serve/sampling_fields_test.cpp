#include <rlalgo/serve/sampling_fields.hpp>

#include <string>
#include <vector>

#include <support/catch.hpp>
#include <support/scratch.hpp>

using namespace rlalgo;
using serve::Fields;
using serve::Json;

namespace {

serve::SamplingRequest read(const Json& object, std::optional<std::int64_t> otherwise = 16) {
  Fields fields(object);
  return serve::read_sampling(fields, {.vocab_size = 10, .length = 100}, otherwise);
}

std::string refused(const Json& object) {
  return support::number_raised_by([&] { (void)read(object); });
}

std::vector<float> edited(const serve::SamplingRequest& request, const std::vector<data::TokenId>& completion) {
  std::vector<float> logits(10, 0.0f);
  request.spec.edit_logits(logits, completion);
  return logits;
}

}  // namespace

TEST_CASE("defaults are neutral, and a length is cut at the context") {
  const auto plain = read(Json::object());
  CHECK(plain.spec.sampling.temperature == 1.0);
  CHECK(plain.spec.sampling.top_p == 1.0);
  CHECK(plain.spec.sampling.top_k == 0);
  CHECK(plain.spec.sampling.max_new_tokens == 16);
  CHECK(plain.spec.count == 1);
  CHECK(!plain.spec.edit_logits);
  CHECK(read(Json::object(), std::nullopt).spec.sampling.max_new_tokens == 100);
  CHECK(read({{"max_tokens", 4000}}).spec.sampling.max_new_tokens == 100);
  CHECK(read({{"top_k", -1}}).spec.sampling.top_k == 0);
}

TEST_CASE("equal seeds are equal draws; without one they differ") {
  CHECK(read({{"seed", 7}}).spec.key.seed == read({{"seed", 7}}).spec.key.seed);
  CHECK(read({{"seed", -7}}).spec.key.seed != read({{"seed", 7}}).spec.key.seed);
  CHECK(read(Json::object()).spec.key.seed != read(Json::object()).spec.key.seed);
  CHECK(read(Json::object()).spec.key.step != read({{"seed", 7}}).spec.key.step);
}

TEST_CASE("biases, allowed ids and penalties change the logits") {
  CHECK(edited(read({{"logit_bias", {{"3", 6}, {"4", -2.5}}}}), {})[3] == 6.0f);
  const auto masked = edited(read({{"allowed_token_ids", {2, 5}}}), {});
  CHECK(masked[2] == 0.0f);
  CHECK(masked[3] == -1e30f);
  const auto penalised = edited(read({{"presence_penalty", 0.5}, {"frequency_penalty", 0.25}}), {1, 4, 1, 1});
  CHECK(penalised[1] == -0.5f - 3 * 0.25f);
  CHECK(penalised[4] == -0.75f);
  CHECK(penalised[0] == 0.0f);
}

TEST_CASE("values out of range are refused") {
  for (const char* text :
       {R"({"max_tokens": -1})", R"({"temperature": -0.5})", R"({"top_p": 0})", R"({"top_p": 1.5})", R"({"top_k": -2})",
        R"({"min_p": 2})", R"({"n": 0})", R"({"n": 100000})", R"({"repetition_penalty": 0})",
        R"({"presence_penalty": 5})", R"({"stop": [""]})", R"({"logit_bias": {"99": 1}})",
        R"({"logit_bias": {"1": 200}})", R"({"allowed_token_ids": []})", R"({"allowed_token_ids": [10]})",
        R"({"min_tokens": 9, "max_tokens": 2})", R"({"stop_token_ids": [10]})"}) {
    INFO(text);
    CHECK(refused(Json::parse(text)) == "serve.4");
  }
  for (const char* text : {R"({"max_tokens": "many"})", R"({"max_tokens": 1.5})", R"({"temperature": "hot"})",
                           R"({"stop": 5})", R"({"stop": [5]})", R"({"logit_bias": {"a": 1}})", R"({"seed": "x"})",
                           R"({"ignore_eos": 1})", R"({"logit_bias": [1]})"}) {
    INFO(text);
    CHECK(refused(Json::parse(text)) == "serve.3");
  }
  CHECK(refused({{"structured_outputs", {{"grammar", "a"}}}}) == "serve.12");
  CHECK(refused({{"structured_outputs", {{"regexp", "a"}}}}) == "serve.12");
  CHECK(refused({{"response_format", {{"type", "grammar"}}}}) == "serve.12");
  CHECK(refused({{"response_format", {{"type", "json_schema"}}}}) == "serve.2");
  CHECK(refused({{"guided_json", "{"}}) == "serve.24");
  CHECK_NOTHROW(read({{"response_format", {{"type", "text"}}}, {"structured_outputs_regex", nullptr}}));
}

TEST_CASE("what a text must match goes by many names") {
  CHECK(!read(Json::object()).pattern);
  CHECK(read({{"structured_outputs", {{"regex", "[0-9]"}}}}).pattern == "[0-9]");
  CHECK(read({{"guided_regex", "[0-9]"}}).pattern == "[0-9]");
  CHECK(read({{"guided_choice", {"a.b", "c"}}}).pattern == "(a\\.b|c)");
  CHECK(read({{"structured_outputs", {{"json", "{\"type\": \"null\"}"}}}}).pattern == "null");
  CHECK(read({{"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "null"}}}}}}}})
            .pattern == "null");
  CHECK(read({{"structured_outputs_regex", "a"}, {"structured_outputs", {{"regex", "b"}}}}).pattern == "a");
}
