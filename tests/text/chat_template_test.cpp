#include <support/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <rlalgo/core/error.hpp>
#include <rlalgo/text/chat_template.hpp>

namespace {

using namespace rlalgo;
using text::ChatOptions;
using text::ChatTemplate;
using text::Json;
using text::SpecialTokens;

SpecialTokens with_bos() {
  SpecialTokens tokens;
  tokens.named["bos_token"] = "<B>";
  return tokens;
}

ChatTemplate bundled(const std::string& name) {
  return ChatTemplate::select(name, std::nullopt, std::nullopt, with_bos());
}

Json chat(std::initializer_list<std::pair<std::string, std::string>> turns) {
  Json messages = Json::array();
  for (const auto& [role, content] : turns) messages.push_back(Json{{"role", role}, {"content", content}});
  return messages;
}

// A conversation with one tool call and its answer.
Json tool_chat() {
  return Json::parse(R"([{"role": "user", "content": "2+3?"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"x": 2, "y": [3.0, null]}}}]},
    {"role": "tool", "content": "5"}, {"role": "tool", "content": "five"}, {"role": "assistant", "content": "It is 5."}])");
}
const Json tools = Json::parse(
    R"([{"type": "function", "function": {"name": "add", "description": "a<b> \"é\"", "parameters": {}}}])");

const ChatOptions prompt{.add_generation_prompt = true};

class Directory {
 public:
  Directory() : path_(std::filesystem::temp_directory_path() / ("rlalgo_chat_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("chatml") {
  CHECK(bundled("chatml").render(chat({{"system", "S"}, {"user", " U "}, {"assistant", "A"}})) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n U <|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n");
  CHECK(bundled("chatml").render(chat({{"user", "U"}}), prompt) ==
        "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n");
  CHECK(bundled("chatml").render(Json::array()).empty());
}

TEST_CASE("llama3 trims, joins text parts and begins with the begin-of-text token") {
  CHECK(bundled("llama3").render(chat({{"system", "S"}, {"user", " U\n"}}), prompt) ==
        "<B><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU<|"
        "eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  const Json parts = Json::parse(
      R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}])");
  CHECK(bundled("llama3").render(parts) == "<B><|start_header_id|>user<|end_header_id|>\n\na b<|eot_id|>");
  const ChatTemplate without_bos = ChatTemplate::select("llama3", std::nullopt, std::nullopt, SpecialTokens());
  CHECK_THROWS_WITH(without_bos.render(chat({{"user", "U"}})), Catch::Contains("'bos_token' is undefined"));
}

TEST_CASE("qwen_25 has a default system message and groups tool answers") {
  CHECK(bundled("qwen_25").render(chat({{"system", "S"}, {"user", "U"}, {"assistant", "A"}, {"system", "T"}})) ==
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n<|im_"
        "start|>system\nT<|im_end|>\n");
  const std::string system = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
  CHECK(bundled("qwen_25").render(chat({{"user", " U "}}), prompt) ==
        system + "<|im_end|>\n<|im_start|>user\n U <|im_end|>\n<|im_start|>assistant\n");
  CHECK(
      bundled("qwen_25").render(tool_chat(), {.tools = tools}) ==
      system +
          "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with "
          "function "
          "signatures within <tools></tools> XML tags:\n<tools>\n{\"type\": \"function\", \"function\": {\"name\": "
          "\"add\", "
          "\"description\": \"a<b> \\\"é\\\"\", \"parameters\": {}}}\n</tools>\n\nFor each function call, return a "
          "json object "
          "with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "
          "<function-name>, "
          "\"arguments\": "
          "<args-json-object>}\n</tool_call><|im_end|>\n<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n"
          "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"x\": 2, \"y\": [3.0, null]}}\n</tool_call><|im_end|>\n"
          "<|im_start|>user\n<tool_response>\n5\n</tool_response>\n<tool_response>\nfive\n</tool_response><|im_end|>\n"
          "<|im_start|>assistant\nIt is 5.<|im_end|>\n");
}

TEST_CASE("qwen3 keeps thoughts only after the last question and opens thinking in the generation prompt") {
  const Json turns = chat({{"user", "Q1"},
                           {"assistant", "<think>\nx\n</think>\n\nA1"},
                           {"user", "Q2"},
                           {"assistant", "<think>\ny\n</think>\n\nA2"}});
  CHECK(bundled("qwen3").render(turns) ==
        "<|im_start|>user\nQ1<|im_end|>\n<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nQ2<|im_end|>\n"
        "<|im_start|>assistant\n<think>\ny\n</think>\n\nA2<|im_end|>\n");
  const Json question = chat({{"user", " U "}});
  CHECK(bundled("qwen3").render(question, prompt) ==
        "<|im_start|>user\n U <|im_end|>\n<|im_start|>assistant\n<think>\n\n");
  CHECK(bundled("qwen3").render(question, {.add_generation_prompt = true, .kwargs = {{"enable_thinking", false}}}) ==
        "<|im_start|>user\n U <|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  // the last assistant turn gets an empty thought; a tool answer is no question
  CHECK(
      bundled("qwen3").render(tool_chat()) ==
      "<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"add\", \"arguments\": "
      "{\"x\": 2, \"y\": "
      "[3.0, "
      "null]}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\n5\n</tool_response>\n<tool_response>\nfive\n"
      "</tool_response><|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nIt is 5.<|im_end|>\n");
  // reasoning by any of its names
  Json reasoned = chat({{"user", "Q"}, {"assistant", "A"}});
  reasoned[1]["reasoning"] = "r";
  CHECK(bundled("qwen3").render(reasoned) ==
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\nr\n</think>\n\nA<|im_end|>\n");
}

TEST_CASE("a template sees tools, documents, special tokens and extra arguments") {
  const ChatTemplate all = ChatTemplate::from_source(
      "{{ tools is defined }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ bos_token }}{{ "
      "eos_token is defined }}{{ extra }}",
      with_bos());
  CHECK(all.render(Json::array()) == "TrueTrueTrueFalse<B>False");
  CHECK(all.render(Json::array(),
                   {.add_generation_prompt = true, .tools = tools, .kwargs = {{"extra", 7}, {"bos_token", "<C>"}}}) ==
        "TrueFalseTrueTrue<C>False7");
}

TEST_CASE("continues the final message") {
  const ChatOptions go_on{.continue_final_message = true};
  const Json messages = chat({{"user", "Q"}, {"assistant", "It is "}});
  CHECK(bundled("chatml").render(messages, go_on) == "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nIt is ");
  // a template that trims leaves no space at the end
  CHECK(bundled("llama3").render(messages, go_on) ==
        "<B><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nIt "
        "is");
  CHECK_THROWS_WITH(bundled("chatml").render(Json::array(), go_on), Catch::Contains("[rlalgo.text.10]"));
  CHECK_THROWS_WITH(bundled("chatml").render(messages, {.add_generation_prompt = true, .continue_final_message = true}),
                    Catch::Contains("[rlalgo.text.10]"));
  CHECK_THROWS_WITH(ChatTemplate::from_source("no messages").render(messages, go_on),
                    Catch::Contains("[rlalgo.text.10]"));
}

TEST_CASE("reads the template of a model directory") {
  const Directory directory;
  CHECK_FALSE(ChatTemplate::from_directory(directory.path()));

  directory.write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  CHECK_FALSE(ChatTemplate::from_directory(directory.path()));

  directory.write("tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "config {{ bos_token }}"})");
  CHECK(ChatTemplate::from_directory(directory.path())->render(Json::array()) == "config <s>");

  directory.write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}, {"name": "x", "template": "{{"}]})");
  CHECK(ChatTemplate::from_directory(directory.path())->render(Json::array()) == "D");
  CHECK(ChatTemplate::from_directory(directory.path())->render(Json::array(), {.tools = tools}) == "T");

  directory.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "T"}]})");
  CHECK(ChatTemplate::from_directory(directory.path())->render(Json::array(), {.tools = tools}) == "T");
  CHECK_THROWS_WITH(ChatTemplate::from_directory(directory.path())->render(Json::array()),
                    Catch::Contains("[rlalgo.text.8]") && Catch::Contains("none of them is the default"));
  directory.write("tokenizer_config.json", R"({"chat_template": "config"})");
  directory.write("additional_chat_templates/rag.jinja", "rag");
  CHECK_THROWS_WITH(ChatTemplate::from_directory(directory.path())->render(Json::array()),
                    Catch::Contains("additional_chat_templates") && Catch::Contains("none of them is the default"));

  directory.write("chat_template.jinja", "file");
  CHECK(ChatTemplate::from_directory(directory.path())->render(Json::array()) == "file");
  CHECK(ChatTemplate::from_directory(directory.path())->source() == "file");
  directory.write("additional_chat_templates/tool_use.jinja", "file with tools");
  CHECK(ChatTemplate::from_directory(directory.path())->render(Json::array(), {.tools = tools}) == "file with tools");

  directory.write("chat_template.jinja", "a\n{% if %}");
  CHECK_THROWS_WITH(ChatTemplate::from_directory(directory.path()),
                    Catch::Contains("[rlalgo.text.6]") && Catch::Contains("chat_template.jinja, line 2"));
  directory.write("tokenizer_config.json", R"({"chat_template": )" + std::string(100000, '['));
  CHECK_THROWS_WITH(ChatTemplate::from_directory(directory.path()),
                    Catch::Contains("[rlalgo.text.2]") && Catch::Contains("200 levels"));
  directory.write("tokenizer_config.json", "{");
  CHECK_THROWS_WITH(ChatTemplate::from_directory(directory.path()), Catch::Contains("[rlalgo.text.2]"));
}

TEST_CASE("selects a template as a configuration asks") {
  const std::optional<ChatTemplate> own = ChatTemplate::from_source("own");
  const auto source = [&](const std::string& choice, const std::optional<std::string>& jinja,
                          const std::optional<ChatTemplate>& of_tokenizer) {
    return ChatTemplate::select(choice, jinja, of_tokenizer, {}).source();
  };
  CHECK(source("", std::nullopt, own) == "own");
  CHECK(source("tokenizer_default", std::nullopt, own) == "own");
  CHECK(source("", "{{ given }}", own) == "{{ given }}");
  CHECK(source("jinja", "{{ given }}", own) == "{{ given }}");
  CHECK(source("tokenizer_default_fallback_chatml", std::nullopt, own) == "own");
  CHECK(source("tokenizer_default_fallback_chatml", std::nullopt, std::nullopt) == ChatTemplate::bundled("chatml"));
  CHECK(source("qwen3", "{{ given }}", own) == ChatTemplate::bundled("qwen3"));
  const Directory directory;
  directory.write("mine.jinja", "from a file");
  CHECK(source("jinja", (directory.path() / "mine.jinja").string(), own) == "from a file");

  for (const std::string name : {"templates/none.jinja", "given", "{", "a }} b"})
    CHECK_THROWS_WITH(source("jinja", name, own),
                      Catch::Contains("[rlalgo.text.9]") && Catch::Contains("neither a template nor a file"));
  CHECK_THROWS_WITH(source("tokenizer_default", std::nullopt, std::nullopt),
                    Catch::Contains("[rlalgo.text.9]") && Catch::Contains("null"));
  CHECK_THROWS_WITH(source("jinja", std::nullopt, own), Catch::Contains("[rlalgo.text.9]"));
  CHECK_THROWS_WITH(source("qwen", std::nullopt, own),
                    Catch::Contains("Template 'qwen' not found.") && Catch::Contains("qwen_25"));
  CHECK_THROWS_WITH(source("tokenizer_default_fallback_none", std::nullopt, std::nullopt),
                    Catch::Contains("Template 'none' not found."));
}

TEST_CASE("every name of axolotl's list is bundled, or refused with what to do instead") {
  for (const char* name : {"alpaca",
                           "chatml",
                           "mistral_v1",
                           "mistral_v2v3",
                           "mistral_v3_tekken",
                           "mistral_v7_tekken",
                           "gemma",
                           "cohere",
                           "llama3",
                           "llama3_2_vision",
                           "llama4",
                           "phi_3",
                           "phi_35",
                           "phi_4",
                           "deepseek_v2",
                           "deepseek_v3",
                           "jamba",
                           "qwen_25",
                           "qwen3",
                           "qwen3_5",
                           "falcon_h1",
                           "nemotron_h",
                           "exaone",
                           "exaone4",
                           "metharme",
                           "pixtral",
                           "llava",
                           "qwen2_vl",
                           "gemma3",
                           "gemma3n",
                           "gemma4",
                           "gemma4_unified",
                           "aya"}) {
    INFO(name);
    CHECK(bundled(name).source() == ChatTemplate::bundled(name));
  }
  for (const char* name : {"command_a", "command_a_tool_use", "command_a_rag"}) {
    CHECK_THROWS_WITH(bundled(name), Catch::Contains("[rlalgo.text.9]") && Catch::Contains("tokenizer_default") &&
                                         Catch::Contains("CC BY-NC"));
  }
}

TEST_CASE("messages of the wrong form are refused") {
  const ChatTemplate chatml = bundled("chatml");
  CHECK_THROWS_WITH(chatml.render(Json("text")), Catch::Contains("[rlalgo.text.10]"));
  CHECK_THROWS_WITH(chatml.render(Json::array({"text"})), Catch::Contains("[rlalgo.text.10]"));
  CHECK_THROWS_WITH(chatml.render(Json::array(), {.kwargs = Json::array()}), Catch::Contains("[rlalgo.text.10]"));
  CHECK_THROWS_WITH(chatml.render(Json::parse(R"([{"role": "user"}])")),
                    Catch::Contains("[rlalgo.text.7]") && Catch::Contains("content"));
  CHECK_THROWS_WITH(ChatTemplate::from_source("{{ raise_exception('only user and assistant') }}").render(Json::array()),
                    Catch::Contains("[rlalgo.text.8]") && Catch::Contains("only user and assistant"));
}

// recorded from transformers by scripts/fixtures/text_chat.py; RLALGO_CHAT_CASES names a larger file of the same form
TEST_CASE("renders conversations as transformers does") {
  std::vector<std::filesystem::path> files = {std::filesystem::path(rlalgo::support::test_dir) /
                                              "golden/text/chat.json"};
  if (const char* more = std::getenv("RLALGO_CHAT_CASES")) files.emplace_back(more);
  SpecialTokens tokens;
  tokens.named = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
  for (const std::filesystem::path& path : files) {
    std::ifstream file(path);
    REQUIRE(file.is_open());
    const Json fixture = Json::parse(file);
    std::size_t rendered = 0;
    for (const Json& row : fixture["cases"]) {
      const auto name = row[0].get<std::string>();
      const Json &chat = fixture["conversations"][row[1].get<std::size_t>()], &source = fixture["templates"][name];
      ChatOptions options{.add_generation_prompt = chat["add_generation_prompt"].get<bool>(),
                          .tools = chat["tools"],
                          .kwargs = chat["kwargs"],
                          .now = fixture["now"].get<std::time_t>()};
      std::string text;
      try {
        text = ChatTemplate::from_source(
                   source.is_null() ? std::string(*ChatTemplate::bundled(name)) : source.get<std::string>(), tokens)
                   .render(chat["messages"], options);
      } catch (const core::Error& error) {
        text = error.what();
      }
      INFO(name << ", conversation " << row[1] << ": " << chat.dump());
      if (row[2].is_number()) {
        CHECK(text == fixture["texts"][row[2].get<std::size_t>()].get<std::string>());
        ++rendered;
      } else {
        const auto kind = row[2].get<std::string>();
        const std::string number = kind == "syntax" ? "6" : kind == "raised" ? "8" : "7";
        INFO(kind);
        CHECK(text.find("[rlalgo.text." + number + "]") == 0);
      }
    }
    CHECK(rendered * 2 > fixture["cases"].size());
  }
}
