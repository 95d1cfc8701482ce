#include <rlalgo/data/document_transform.hpp>

#include <string_view>

#include <support/catch.hpp>

using namespace rlalgo;
using data::Document;
using data::Json;
using data::TokenId;

namespace {

// A byte is its value; five special tokens follow.
std::vector<TokenId> encode(const std::string& text) {
  static const std::vector<std::string> marks = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"};
  std::vector<TokenId> out;
  for (std::size_t i = 0; i < text.size();) {
    bool special = false;
    for (std::size_t m = 0; m < marks.size() && !special; ++m)
      if (text.compare(i, marks[m].size(), marks[m]) == 0) {
        out.push_back(256 + static_cast<TokenId>(m));
        i += marks[m].size();
        special = true;
      }
    if (!special) out.push_back(static_cast<unsigned char>(text[i++]));
  }
  return out;
}

std::string chatml(const Json& messages, bool prompt) {
  std::string out;
  for (const Json& m : messages)
    out += "<|im_start|>" + m["role"].get<std::string>() + "\n" + m["content"].get<std::string>() + "<|im_end|>\n";
  return prompt ? out + "<|im_start|>assistant\n" : out;
}

Document document(const std::string& type, const std::string& row, std::int64_t length, bool mask = false,
                  bool bos = false) {
  const data::DocumentTools tools{.encode =
                                      [bos](const std::string& text, bool special) {
                                        auto ids = encode(text);
                                        if (bos && special) ids.insert(ids.begin(), 999);
                                        return ids;
                                      },
                                  .render = chatml};
  return data::document_of(type, Json::parse(row), "rows.jsonl:2", tools, {.length = length, .mask_thinking = mask});
}

std::size_t trained(const Document& d) {
  return static_cast<std::size_t>(std::count(d.loss_mask.begin(), d.loss_mask.end(), 1));
}

}  // namespace

TEST_CASE("prompt and completion, and what is cut of them") {
  const std::string type = "ebft_strided_structured.transform";
  const Document a = document(type, R"({"input": "abc", "output": "de"})", 8);
  CHECK(a.ids == std::vector<TokenId>{97, 98, 99, 100, 101});
  CHECK(a.loss_mask == std::vector<std::uint8_t>{0, 0, 0, 1, 1});
  CHECK(a.prompt_length == 3);
  const Document b = document(type, R"({"prompt": "abc", "completion": "defghijk"})", 8);
  CHECK(b.ids.size() == 8);
  CHECK(b.loss_mask == std::vector<std::uint8_t>{0, 0, 0, 1, 1, 1, 1, 1});
  const Document c = document(type, R"({"question": "abcdefghijkl", "answer": "mn"})", 8);
  CHECK(c.ids == std::vector<TokenId>{97, 98, 99, 100, 101, 102, 103, 109});
  CHECK(c.loss_mask == std::vector<std::uint8_t>{0, 0, 0, 0, 0, 0, 0, 1});
  CHECK(c.prompt_length == 7);
  const Document none = document(type, R"({"text": "abc"})", 8);
  CHECK(none.ids.empty());
  CHECK(none.prompt_length == 0);
  CHECK(document(type, R"({"input": "abc", "output": "de"})", 8, false, true).ids.front() == 999);
  CHECK_THROWS_WITH(document(type, R"({"input": 3})", 8), Catch::Contains("[rlalgo.data.10]"));
}

TEST_CASE("the words of the answers of a conversation are trained") {
  const Document one =
      document("ebft_strided_chat.transform",
               R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})", 28);
  CHECK(one.ids == std::vector<TokenId>{257, 117, 115, 101, 114, 10,  81,  258, 10, 257, 97, 115,
                                        115, 105, 115, 116, 97,  110, 116, 10,  65, 258, 10});
  CHECK(one.prompt_length == 20);
  CHECK(trained(one) == 3);
  const char* const two =
      R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}, {"role": "user", "content": "R"}, {"role": "assistant", "content": "B"}]})";
  const Document both = document("ebft_strided_chat.transform", two, 56);
  CHECK(both.ids.size() == 46);
  CHECK(trained(both) == 6);
  CHECK(both.loss_mask[20] == 1);
  CHECK(both.loss_mask[43] == 1);
  CHECK(both.prompt_length == 20);
  const Document last = document("ebft_reasoning.transform_strided", two, 56);
  CHECK(trained(last) == 3);
  CHECK(last.prompt_length == 43);
  const Document cut = document("ebft_strided_chat.transform", two, 21);
  CHECK(cut.ids.size() == 21);
  CHECK(trained(cut) == 1);
  const Document unreached = document("ebft_strided_chat.transform", two, 10);
  CHECK(trained(unreached) == 0);
  CHECK(unreached.prompt_length == 10);
  CHECK(document("ebft_strided_chat.transform", R"({"messages": []})", 10).ids.empty());
}

TEST_CASE("thoughts may go without a likelihood term") {
  const char* const row =
      R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "<think>a</think>4"}]})";
  const Document plain = document("ebft_reasoning.transform_strided", row, 32);
  CHECK(plain.prompt_length == 20);
  CHECK(trained(plain) == 6);
  const Document masked = document("ebft_reasoning.transform_strided", row, 32, true);
  CHECK(masked.ids == plain.ids);
  CHECK(masked.prompt_length == 23);
  CHECK(trained(masked) == 3);
  CHECK(masked.loss_mask[23] == 1);
}

TEST_CASE("thoughts of an answer that goes on from a prompt") {
  const data::DocumentTools tools{.encode = [](const std::string& text, bool) { return encode(text); }, .render = {}};
  const auto mask = [&](const std::string& prompt, const std::string& answer) {
    const std::vector<TokenId> ids = encode(prompt + answer);
    std::vector<std::uint8_t> out(ids.size(), 1);
    data::mask_thoughts(ids, prompt.empty() ? 0 : encode(prompt).size(), out, tools);
    return std::vector<std::uint8_t>(out.end() - static_cast<std::ptrdiff_t>(encode(answer).size()), out.end());
  };
  using Mask = std::vector<std::uint8_t>;
  CHECK(mask("Q: ", "<think>a</think>4") == Mask{0, 0, 0, 1});
  CHECK(mask("Q: <think>\n", "a</think>4") == Mask{0, 0, 1});  // the prompt opens it
  CHECK(mask("<think>b</think>Q: ", "a</think>4") == Mask{1, 1, 1});
  CHECK(mask("", "1<think>a</think>2<think>b") == Mask{1, 0, 0, 0, 1, 0, 0});  // twice, the second without an end
  CHECK(mask("Q: ", "") == Mask{});
}

TEST_CASE("a text of its own is trained as a whole") {
  const Document a = document("ebft_pretrain.transform", R"({"text": "abcdef"})", 4, false, true);
  CHECK(a.ids == std::vector<TokenId>{999, 97, 98, 99});
  CHECK(trained(a) == 4);
  CHECK_FALSE(a.prompt_length.has_value());
  CHECK(document("ebft_pretrain.transform", R"({"question": "xy", "text": "abcdef"})", 4).ids.size() == 2);
  CHECK(document("ebft_pretrain.transform", R"({"text": ""})", 4).ids.empty());
  CHECK_THROWS_WITH(document("ebft_pretrain.transform", R"({"prompt": "a"})", 4), Catch::Contains("[rlalgo.data.10]"));
}

TEST_CASE("rows of token ids that a user's function makes") {
  const auto of = [](const char* row, std::int64_t length = 8) {
    return data::document_of_ids(Json::parse(row), "rows.jsonl:3", 100, {.length = length});
  };
  const Document plain = of(R"({"input_ids": [1, 2, 3]})");
  CHECK(plain.ids == std::vector<TokenId>{1, 2, 3});
  CHECK(trained(plain) == 3);
  CHECK_FALSE(plain.prompt_length.has_value());
  const Document padded =
      of(R"({"input_ids": [1, 2, 3, 0, 0], "labels": [-100, 2, 3, -100, -100], "attention_mask": [1, 1, 1, 0, 0]})");
  CHECK(padded.ids == std::vector<TokenId>{1, 2, 3});
  CHECK(padded.loss_mask == std::vector<std::uint8_t>{0, 1, 1});
  CHECK(padded.prompt_length == 1);
  const Document cut = of(R"({"input_ids": [1, 2, 3, 4], "prompt_length": 3})", 2);
  CHECK(cut.ids == std::vector<TokenId>{1, 2});
  CHECK(cut.prompt_length == 2);
  for (const char* wrong : {R"({"text": "a"})", R"({"input_ids": [100]})", R"({"input_ids": ["a"]})",
                            R"({"input_ids": [1], "labels": [1, 2]})", R"({"input_ids": [1], "attention_mask": [2]})",
                            R"({"input_ids": [1], "prompt_length": -1})", R"({"input_ids": "1"})"})
    CHECK_THROWS_WITH(of(wrong), Catch::Contains("[rlalgo.data.10]") && Catch::Contains("rows.jsonl:3"));
}
