// Damaged requests: each is read, or refused with a status of 400 to 499, quickly and in little memory.
//
// The inputs: support/damage.hpp.
#include <sys/resource.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/os/clock.hpp>
#include <rlalgo/serve/detail/target.hpp>
#include <rlalgo/serve/fields.hpp>
#include <rlalgo/serve/pattern.hpp>
#include <rlalgo/serve/prompts.hpp>
#include <rlalgo/serve/refusal.hpp>
#include <rlalgo/serve/sampling_fields.hpp>
#include <rlalgo/serve/wire_tensor.hpp>

#include <support/catch.hpp>
#include <support/damage.hpp>

#include "serve/served.hpp"

using namespace rlalgo;
using serve::Json;

namespace {

constexpr std::uint64_t default_inputs = 20'000;
constexpr double most_seconds = 2.0;      // of one input, on a busy machine
constexpr long most_kilobytes = 400'000;  // more than before

using support::Draw;

std::string damaged(std::string text, Draw& draw) {
  static const std::vector<std::string> pieces = support::json_pieces(
      {"\"\\ud800\"", "[[]]", "[-1]", "[530]", "[1.5]", "{\"a\":{\"a\":{\"a\":1}}}", "\"(((((((\"", "\"[z-a]\"",
       "\"a{1000000}\"", "\"(a*)*{9}\"", "{\"$ref\":\"#\"}", "\"{{ 1/0 }}\"", "\"{% for x in y %}\"", "\"AAAA\"",
       "[\"a\",1]", "[null]", "{\"type\":\"object\"}", "\"%\"", "\"\xf0\x9f\x98\x80\""});
  return support::damaged_json(std::move(text), draw, pieces);
}

// Empty where `call` returns or refuses as a request is refused; else what went wrong.
std::string problem_of(const std::function<void()>& call, std::uint64_t& accepted) {
  try {
    call();
    ++accepted;
    return {};
  } catch (const serve::Refusal& error) {
    const bool told =
        std::string(error.what()).starts_with("[rlalgo.") && error.status() >= 400 && error.status() < 500;
    return told ? std::string() : "status " + std::to_string(error.status()) + ": " + error.what();
  } catch (const core::Error& error) {  // a chat template's: status 400 by detail::answer_error
    return std::string(error.what()).starts_with("[rlalgo.") ? std::string() : error.what();
  } catch (const std::exception& error) {
    return error.what();
  }
}

long peak_kilobytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Runs `read` on damaged copies of `texts`.
void try_all(std::uint64_t kind, const std::vector<std::string>& texts,
             const std::function<void(std::size_t, const std::string&)>& read) {
  const long before = peak_kilobytes();
  const auto [first, inputs] = support::fuzz_inputs(default_inputs);
  std::uint64_t accepted = 0, failed = 0;
  for (std::uint64_t i = first; i < first + inputs; ++i) {
    Draw draw(21, kind << 40U | i);
    const std::size_t which = draw.below(texts.size());
    const std::string text = draw.below(20) == 0 ? texts[which] : damaged(texts[which], draw);
    const os::Stopwatch watch;
    std::string problem = problem_of([&] { read(which, text); }, accepted);
    if (problem.empty() && watch.seconds() > most_seconds) problem = std::to_string(watch.seconds()) + " s";
    if (!problem.empty() && ++failed < 5) FAIL_CHECK("input " << i << ": " << problem << ": " << text);
  }
  CHECK(failed == 0);
  CHECK(accepted > inputs / 30);  // the undamaged ones
  CHECK(accepted < inputs);
  CHECK(peak_kilobytes() - before < most_kilobytes);
}

void follow(const std::optional<std::string>& expression) {
  if (!expression) return;
  const serve::Pattern pattern(*expression);
  (void)pattern.accepts(pattern.start());
  serve::Pattern::State state = pattern.start();
  for (const char* part : {"{\"a\": ", "12", "-ab", "\"x\""})
    if (state != serve::Pattern::dead) state = pattern.next(state, part);
}

}  // namespace

TEST_CASE("damaged bodies of requests for text are read or refused") {
  const serve::ServedModel model = served::model();
  const serve::SamplingLimits limits{.vocab_size = 530, .length = 200};
  const std::vector<std::string> texts = {
      R"({"model":"tiny","prompt":"one two","max_tokens":12,"n":2,"temperature":0.7,"top_p":0.9,"top_k":20,"min_p":0.1,)"
      R"("repetition_penalty":1.1,"seed":7,"stop":["x","yy"],"stop_token_ids":[3,5],"logit_bias":{"5":1.5},"min_tokens":1})",
      R"({"prompts":[[1,2,3],[4]],"n":1,"max_tokens":5,"allowed_token_ids":[1,2],"presence_penalty":1,"logprobs":0,)"
      R"("structured_outputs_regex":"[0-9]{2}-(a|b)+"})",
      R"({"prompt":[[1,2],[3]],"structured_outputs":{"json":{"type":"object","properties":{"a":{"type":"integer"},)"
      R"("b":{"type":"array","items":{"enum":["x",1]},"maxItems":3}},"required":["a"]}}})",
      R"({"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"$defs":{"s":)"
      R"({"type":"string","pattern":"[a-c]+"}},"anyOf":[{"$ref":"#/$defs/s"},{"const":null},{"type":["number","boolean"]}]}}}})",
      R"({"prompt":"a","guided_choice":["yes","no"],"ignore_eos":false,"frequency_penalty":-0.5,"truncate_prompt_tokens":3})"};
  try_all(1, texts, [&](std::size_t which, const std::string& text) {
    const Json body = serve::parse_body(text);
    serve::Fields fields(body);
    const serve::SamplingRequest request = serve::read_sampling(fields, limits, 16);
    if (request.spec.sampling.max_new_tokens < 1 || request.spec.sampling.max_new_tokens > limits.length)
      throw std::logic_error("max_tokens was let through");
    for (const serve::Prompt& prompt : serve::read_prompts(fields, which == 1 ? "prompts" : "prompt", model, true))
      for (const data::TokenId id : prompt.ids)
        if (id < 0 || id >= 530) throw std::logic_error("an id was let through");
    follow(request.pattern);
    (void)fields.unread();
  });
}

TEST_CASE("damaged conversations are read or refused") {
  const serve::ServedModel model = served::model();
  const std::vector<std::string> texts = {
      R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},{"type":"text",)"
      R"("text":"b"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":)"
      R"({"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","content":"7"}],"tools":[{"type":"function","function":)"
      R"({"name":"f","parameters":{"type":"object"}}}]})",
      R"({"messages":[{"role":"user","content":"hi"}],"chat_template":"{% for m in messages %}{{ m.role }}{% endfor %}",)"
      R"("chat_template_kwargs":{"x":1},"add_generation_prompt":true,"documents":[{"title":"t"}]})"};
  try_all(2, texts, [&](std::size_t, const std::string& text) {
    const Json body = serve::parse_body(text);
    serve::Fields fields(body);
    const Json messages = serve::checked_messages(fields.required("messages"), "messages");
    (void)serve::render_chat(fields, messages, model);
  });
}

TEST_CASE("damaged weights and targets are read or refused") {
  const std::vector<std::string> texts = {
      R"({"name":"w","dtype":"torch.bfloat16","shape":[2,2],"data":"ADwAuAA0AEA="})",
      R"({"name":"w","dtype":"float32","wire_dtype":"float32","shape":[1],"data":"AACAPw=="})",
      "/v1/models/a%20b?mode=abort&x=%zz&&=1"};
  try_all(3, texts, [&](std::size_t which, const std::string& text) {
    if (which == 2) {
      const serve::detail::Target target(text);
      if (target.path().size() > text.size() || target.query("mode").size() > text.size())
        throw std::logic_error("a target grew");
      return;
    }
    const model::NamedTensor read = serve::read_wire_tensor(serve::parse_body(text), "params[0]");
    if (read.second.numel() > 1 << 20) throw std::logic_error("a tensor larger than its bytes");
  });
}
