// Where templates are found, what they may cost, and that hostile ones end with an error.
#include "text/chat/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "text/test_model.h"

namespace braid {
namespace {

using testing::HasSubstr;
using testing::Not;

Result<std::string> Render(std::string source, const json::value& context) {
  ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::FromSource(std::move(source), {}));
  return chat.Render(context);
}

std::string RenderError(std::string source) {
  const double start = CpuSeconds();
  auto text = Render(std::move(source), json::object({{"messages", json::array()}}));
  const double seconds = CpuSeconds() - start;
  EXPECT_LT(seconds, 10);
  return text ? "rendered" : text.error().message;
}

TEST(ChatTemplateTest, HostileTemplatesEndWithAnError) {
  const std::string r = "range(99999)";
  EXPECT_THAT(
      RenderError("{% for a in " + r + " %}{% for b in " + r + " %}{% endfor %}{% endfor %}"),
      HasSubstr("ran out of fuel"));
  EXPECT_THAT(RenderError("{% for a in range(10000000) %}{% endfor %}"), HasSubstr("range"));
  EXPECT_THAT(RenderError("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("recursion limit"));
  EXPECT_THAT(
      RenderError("{% for x in [[[]]] recursive %}{{ loop([[]]) }}{{ loop([x]) }}{% endfor %}"),
      HasSubstr("recursion limit"));
  EXPECT_THAT(
      RenderError("{% set x = 'xxxxxxxx' * 1000000 %}{% for a in range(999) %}{{ x }}{% endfor %}"),
      HasSubstr("the output exceeds"));
  EXPECT_THAT(RenderError("{% for a in range(999) %}" + std::string(100'000, 'x') + "{% endfor %}"),
              HasSubstr("the output exceeds"));
  EXPECT_THAT(RenderError("{{ 'x' * 100000000000 }}"), HasSubstr("ran out of fuel"));
  EXPECT_THAT(RenderError("{% set x = 'x' * 100000 %}{{ x.replace('x', x) }}"),
              HasSubstr("ran out of fuel"));
  EXPECT_THAT(RenderError("{{ 'a\nb' | indent(1000000000000) }}"),
              HasSubstr("the width exceeds 64"));
  EXPECT_THAT(RenderError("{% set ns = namespace(x=[]) %}{% for i in range(300) %}"
                          "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"),
              HasSubstr("nested too deeply"));
}

TEST(ChatTemplateTest, L64_ATemplateHasBounds) {
  EXPECT_EQ(RenderError(std::string(1 << 20, 'x')), "rendered");
  EXPECT_THAT(RenderError(std::string((1 << 20) + 1, 'x')), HasSubstr("1048576"));
  EXPECT_EQ(RenderError("{% for a in range(100000) %}{% endfor %}"), "rendered");
  EXPECT_THAT(RenderError("{% for a in range(100001) %}{% endfor %}"), HasSubstr("range"));
  std::string deep, wide;
  for (int i = 0; i < 200; ++i) deep += "{% if true %}";
  for (int i = 0; i < 200; ++i) deep += "{% endif %}";
  EXPECT_NE(RenderError(deep), "rendered");
  for (int i = 0; i < 60000; ++i) wide += "{{a}}";
  EXPECT_THAT(RenderError(wide), HasSubstr("100000"));
}

TEST(ChatTemplateTest, SlowTemplatesRunIntoTheWallLimit) {
  // A long conversation allows many instructions.
  const json::value context = {{"messages", json::array{std::string(8 << 20, 'x')}}};
  const std::string loop = "{% for a in range(99999) %}";
  const auto text = Render(loop + loop + "{{ b }}{% endfor %}{% endfor %}", context);
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("rendering takes longer than 2000 ms"));
}

TEST(ChatTemplateTest, TemplatesThatDoNotParseNameTheLine) {
  for (std::string_view source :
       {"\n\n{% if %}", "\n\n{{ x", "\n\n{% for x in %}", "\n\n{% nope %}"}) {
    auto chat = ChatTemplate::FromSource(std::string(source), {});
    ASSERT_FALSE(chat);
    EXPECT_THAT(chat.error().message, HasSubstr("does not parse"));
    EXPECT_THAT(chat.error().message, HasSubstr("chat_template:3"));
  }
  EXPECT_FALSE(ChatTemplate::FromSource(std::string((1 << 20) + 1, ' '), {}));
  EXPECT_FALSE(ChatTemplate::FromSource("{{ " + std::string(100'000, '(') + " }}", {}));
  EXPECT_FALSE(ChatTemplate::FromSource("{{ " + std::string(500'000, '-') + "1 }}", {}));
  std::string nested;
  for (int i = 0; i < 10'000; ++i) nested += "{% if 1 %}";
  EXPECT_FALSE(ChatTemplate::FromSource(nested, {}));
  std::string chain = "{% if 0 %}";
  for (int i = 0; i < 10'000; ++i) chain += "{% elif 0 %}";
  EXPECT_FALSE(ChatTemplate::FromSource(chain + "{% endif %}", {}));
  EXPECT_FALSE(ChatTemplate::FromSource("\xFF", {}));
}

TEST(ChatTemplateTest, RandomTemplatesNeverCrash) {
  const std::vector<std::string_view> parts = {
      "{%",          "%}",         "{{",       "}}",          "{#",       "#}",    " for ",
      " in ",        " if ",       " endfor ", " endif ",     "messages", "x",     "|",
      "(",           ")",          "[",        "]",           "'",        " set ", "=",
      "tojson",      "-",          ".role",    "::",          "1",        "~",     "loop.previtem",
      " macro x() ", " endmacro ", "range(9)", " generation "};
  Rng rng(11);
  int rendered = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string source;
    for (int64_t n = rng.Below(14); n > 0; --n) source += parts[static_cast<size_t>(rng.Below(32))];
    auto text = Render(source, json::object({{"messages", json::array({1, "a"})}}));
    rendered += text.ok();
    EXPECT_THAT(text ? "" : text.error().message, Not(HasSubstr("internal error"))) << source;
  }
  EXPECT_GT(rendered, 100);
}

TEST(ChatTemplateTest, ATemplateCannotReachFiles) {
  for (std::string_view tag : {"include", "import", "extends"}) {
    const std::string rest = tag == "import" ? " as x" : "";
    const std::string source = "{% " + std::string(tag) + " '/etc/passwd'" + rest + " %}";
    EXPECT_NE(RenderError(source), "rendered");
  }
}

TEST(ChatTemplateTest, GenerationMarksAreBlocksWithoutEffect) {
  auto text =
      Render("a\n{%- generation -%} b {% endgeneration %}\n{{ '{% generation' }}", json::object());
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, "ab {% generation");
}

TEST(ChatTemplateTest, DeepContextsAreErrors) {
  json::value deep = json::array();
  for (int i = 0; i < 1'000; ++i) deep = json::array({deep});
  auto text = Render("{{ x | tojson }}", json::object({{"x", deep}}));
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("recursion limit"));
}

TEST(ChatTemplateTest, NumbersKeepTheirType) {
  const json::value context = {{"a", 1}, {"b", 1.0}, {"c", 1e-5}, {"d", -0.5}, {"e", 1e22}};
  auto text = Render("{{ a }} {{ b }} {{ c }} {{ d }} {{ e }}", context);
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, "1 1.0 1e-05 -0.5 1e+22");
  const std::string_view numbers = "[94.95886283158103, 18.183216676054286, 18446744073709551615]";
  text = Render("{{ x | tojson }}", {{"x", *ParseJson(numbers, "numbers")}});
  ASSERT_TRUE(text);
  EXPECT_EQ(*text, numbers);
}

TEST(ChatTemplateTest, LinesEndWithALineFeedHoweverTheFileEndsThem) {
  auto text = Render("a\r\nb\rc{% if true %}\r\nd{% endif %}\r\n{{ 'x\r\ny' }}{{ m }}\r\n",
                     {{"m", "u\r\nv"}});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, "a\nb\ncdx\nyu\r\nv") << "what messages hold stays";
}

TEST(ChatTemplateTest, AMissingValueIsEmpty) {
  auto text = Render(
      "{{ m | length }}{{ absent | length }}{{ absent | count }}"
      "{% for key, value in absent | items %}{{ key }}{% else %}n{% endfor %}[{{ absent | trim }}]",
      {{"m", "ab"}});
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, "200n[]");
}

TEST(ChatTemplateTest, ValuesBehaveAsInPython) {
  const json::value context = {{"s", " \x1c\u3000a\u00a0\x1f\n"},
                               {"t", "a-b-c"},
                               {"w", "  a b  c "},
                               {"l", {1, 2, 3, 4, 5, 6}},
                               {"empty", ""}};
  struct Case {
    const char* source;
    const char* text;
  };
  for (const Case& c : {
           Case{"[{{ s.strip() }}{{ s | trim }}{{ s.split() | join }}]", "[aaa]"},
           Case{"[{{ s.lstrip() }}]", "[a\u00a0\x1f\n]"},
           Case{"[{{ s.rstrip(none) }}]", "[ \x1c\u3000a]"},
           Case{"{{ 'xax' | trim('x') }}{{ 'xax'.strip('x') }}{{ 7 | trim }}", "aa7"},
           Case{"{{ t.split('-', maxsplit=1) }}", "['a', 'b-c']"},
           Case{"{{ t.split(sep='-') }}", "['a', 'b', 'c']"},
           Case{"{{ t.split('-', 1)[-1] }}{{ t.split('-', -1)[-1] }}", "b-cc"},
           Case{"{{ t.rsplit('-', 1) }}", "['a-b', 'c']"},
           Case{"{{ t.rsplit('-') }}", "['a', 'b', 'c']"},
           Case{"{{ w.split() }}", "['a', 'b', 'c']"},
           Case{"{{ w.split(none, 1) }}", "['a', 'b  c ']"},
           Case{"{{ w.split(maxsplit=0) }}{{ ''.split() }}", "['a b  c '][]"},
           Case{"{{ t.partition('-')[2] }}|{{ t.partition('/') | join(',') }}", "b-c|a-b-c,,"},
           Case{"{{ t.rpartition('-')[0] }}|{{ t.rpartition('/') | join(',') }}", "a-b|,,a-b-c"},
           Case{"{{ t.removeprefix('a-') }} {{ t.removesuffix('-c') }}", "b-c a-b"},
           Case{"{{ t.removeprefix('x') }} {{ t.upper() }} {{ t.find('b') }}", "a-b-c A-B-C 2"},
           Case{"{{ l[4:0:-2] }}{{ l[5:0:-3] }}{{ l[:-4:-1] }}", "[5, 3][6, 3][6, 5, 4]"},
           Case{"{{ l[9:-9:-4] }}{{ l[1:3:-1] }}{{ l[-2::2] }}", "[6, 2][][5]"},
           Case{"{{ t[4:0:-2] }} {{ t[3::-3] }}", "cb -a"},
           Case{"{{ t | replace('-', '+', 1) }} {{ t | replace('-', '') }}", "a+b-c abc"},
           Case{"{{ t.replace('-', '++') }} {{ t.replace('-', '', 1) }}", "a++b++c ab-c"},
           Case{"{{ t.replace('', '.', 2) }} {{ t.replace('a', '', -1) }}", ".a.-b-c -b-c"},
           Case{"{{ empty | default('x') }}{{ empty | default('x', true) }}{{ absent | d }}", "x"},
           Case{"{{ empty | default('x', boolean=true) }}{{ absent | d(default_value=3) }}", "x3"},
           Case{"{{ absent | default(none) is none }} {{ empty | d(none, true) is none }}",
                "True True"},
           Case{"{{ absent | default(missing) | default(7) }}{{ empty | d(none) }}", "7"},
       }) {
    auto text = Render(c.source, context);
    ASSERT_TRUE(text) << c.source << text.error().message;
    EXPECT_EQ(*text, c.text) << c.source;
  }
  EXPECT_FALSE(Render("{{ t.split('') }}", context));
  EXPECT_FALSE(Render("{{ t | default('x', bool=true) }}", context));
  EXPECT_FALSE(Render("{{ t | default('x', true, 1) }}", context));
}

TEST(ChatTemplateTest, FindsTheTemplateWhereCheckpointsKeepIt) {
  ModelFolder folder;
  auto none = ChatTemplate::Load(folder.path());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);

  const json::value context = {{"messages", json::array()}};
  folder.Write("tokenizer_config.json",
               R"({"chat_template": "A{{ eos_token }}{{ bos_token }}", "bos_token": null,
                   "eos_token": {"content": "<e>"}})");
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(context), "A<e>");

  folder.Write("tokenizer_config.json", R"({"chat_template": [
      {"name": "default", "template": "D{{ tools }}"},
      {"name": "tool_use", "template": "T{{ tools }}"}]})");
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(context), "DNone");
  json::object with_tools = context.get_object();
  with_tools["tools"] = json::array({"f"});
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(with_tools), "T['f']");

  folder.Write("chat_template.jinja", "J{{ add_generation_prompt }}\n");
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(context), "JFalse");
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(with_tools), "JFalse");
  std::filesystem::create_directory(folder.path() + "/additional_chat_templates");
  folder.Write("additional_chat_templates/tool_use.jinja", "T{{ tools }}");
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(context), "JFalse");
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(with_tools), "T['f']");

  for (std::string_view wrong : {R"({"chat_template": 3})", R"({"chat_template": []})", "[]",
                                 R"({"chat_template": [{"name": "default"}]})"}) {
    ModelFolder other;
    other.Write("tokenizer_config.json", wrong);
    auto chat = ChatTemplate::Load(other.path());
    ASSERT_FALSE(chat) << wrong;
    EXPECT_THAT(chat.error().message, HasSubstr("tokenizer_config.json"));
  }
}

TEST(ChatTemplateTest, KeysOfToolsAreSortedWhereTheTokenizersClassSortsThem) {
  const json::value context = json::parse(R"({"x": {"b": 1, "a": 2}, "tools": [{"type": "function",
      "function": {"name": "f", "parameters": {"é": 1, "a": [{"d": 1, "c": 2}], "B": null}}}]})");
  ModelFolder folder;
  folder.Write("chat_template.jinja", "{{ tools | tojson }}{{ x | tojson }}");
  folder.Write("tokenizer_config.json", R"({"tokenizer_class": "TikTokenTokenizer"})");
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(context),
            R"([{"function": {"name": "f", "parameters": )"
            R"({"B": null, "a": [{"c": 2, "d": 1}], "é": 1}}, "type": "function"}])"
            R"({"b": 1, "a": 2})");
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(json::object{{"x", 1}}), "null1");
  folder.Write("tokenizer_config.json", R"({"tokenizer_class": "PreTrainedTokenizerFast"})");
  EXPECT_EQ(*ChatTemplate::Load(folder.path())->Render(context),
            R"([{"type": "function", "function": {"name": "f", "parameters": )"
            R"({"é": 1, "a": [{"d": 1, "c": 2}], "B": null}}}])"
            R"({"b": 1, "a": 2})");
}

TEST(ChatTemplateTest, TheContextMustBeAnObject) {
  auto text = Render("x", json::array());
  ASSERT_FALSE(text);
  EXPECT_THAT(text.error().message, HasSubstr("expected an object"));
}

}  // namespace
}  // namespace braid
