#include <rlalgo/run/detail/report_data.hpp>
#include <rlalgo/run/detail/report_timeline.hpp>
#include <rlalgo/run/report.hpp>

#include <fstream>

#include <support/catch.hpp>

#include "run/fake_run.hpp"

using namespace rlalgo::run;
namespace fs = std::filesystem;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

std::string report(const fs::path& dir) { return fake::read(write_report(dir)); }

}  // namespace

TEST_CASE("the report of a run shows its curves, samples and settings and needs nothing from outside") {
  const fake::TempDir dir;
  fake::Run run;
  LoopConfig config = fake::config(dir.path, 12);
  config.report = true;
  config.title = "GRPO of <tiny> & friends";
  config.settings = {{"learning_rate", 0.1}, {"trl", {{"beta", 0.04}}}, {"note", "<script>alert(1)</script>"}};
  Loop(config, run.callbacks()).run();
  const std::string page = fake::read(dir.path / "report.html");
  CHECK(page.starts_with("<!doctype html>"));
  CHECK(page.find("</html>") != std::string::npos);
  CHECK(page.find("GRPO of &lt;tiny&gt; &amp; friends") != std::string::npos);
  for (const char* chart : {">Reward<", ">Loss<", ">KL to the reference, nats<", ">Gradient norm<", ">Learning rate<",
                            ">Tokens so far<", ">Seconds per step<"}) {
    INFO(chart);
    CHECK(count(page, chart) == 1);
  }
  CHECK(page.find("trl.beta</dt><dd>0.04<") != std::string::npos);
  CHECK(page.find("<span class=\"chip finished\">finished</span>") != std::string::npos);
  CHECK(page.find("12 / 12") != std::string::npos);
  // Samples of the logged steps 1, 3, 6, 9 and 12.
  CHECK(count(page, "<summary>Step ") == 5);
  CHECK(page.find("answer 12") != std::string::npos);
  CHECK(count(page, "[cut at the limit]") == 5);
  CHECK(page.find("What is 1 &lt; 2?") != std::string::npos);
  // One script, ours; nothing fetched.
  CHECK(count(page, "<script") == 1);
  CHECK(page.find("&lt;script&gt;alert(1)") != std::string::npos);
  for (const char* outside : {"http:", "https:", "src=", "@import", "url("}) {
    INFO(outside);
    CHECK(page.find(outside) == std::string::npos);
  }
  // The only links are to the checkpoints that are there, each with the values at its step.
  CHECK(count(page, "href=") == 4);
  for (const char* step : {"6", "8", "10", "12"}) {
    const std::string name = std::string("checkpoint-") + step;
    CHECK(count(page, "<a href=\"" + name + "/\">" + name + "</a>") == 1);
  }
}

TEST_CASE("a chart's axis holds its values: none below 0 or above 1 for shares, 0 to 1 for a flat 0") {
  using rlalgo::run::detail::Chart;
  const auto axis = [](std::vector<double> values, bool share) {
    Chart chart{"c", {{"a", {}}}, share};
    for (std::size_t i = 0; i < values.size(); ++i)
      chart.series[0].points.push_back({static_cast<double>(i + 1), values[i]});
    const std::string html = rlalgo::run::detail::ChartDrawing(chart).html();
    std::string labels;
    const std::string mark = "<text text-anchor=\"end\"";
    for (std::size_t at = 0; (at = html.find(mark, at)) != std::string::npos; ++at) {
      const std::size_t begin = html.find('>', at) + 1;
      labels += html.substr(begin, html.find('<', begin) - begin) + " ";
    }
    return labels;
  };
  CHECK(axis({0, 0, 0}, true) == "0 0.5 1 ");
  CHECK(axis({0, 0, 0}, false) == "0 0.5 1 ");
  CHECK(axis({1, 1}, true) == "0 0.5 1 ");
  CHECK(axis({0.25}, true) == "0 0.5 1 ");
  CHECK(axis({0, 1}, true) == "0 0.5 1 ");
  CHECK(axis({0.5, 1}, true) == "0.6 0.8 1 ");
  CHECK(axis({-1, 0.5}, true) == "-1 -0.5 0 0.5 ");  // not a share after all
  CHECK(axis({10, 10}, false) == "9 10 11 ");
  CHECK(axis({-2, -2}, false) == "-2.2 -2 -1.8 ");
  CHECK(axis({}, true) == "0 0.5 1 ");
}

TEST_CASE("the timeline divides what the steps of a record took, and has the generator's own where it runs beside") {
  using rlalgo::run::detail::Timeline;
  // 2 steps of 3 s: 1 s of generation, 1.5 of training, 0.5 of something else; then an evaluation; then 1 step.
  const Record first{2, 0.1, {{"time/generate", 1.0}, {"time/train", 1.5}, {"time/step", 3.0}}};
  const Record evaluation{2, 0.1, {{"eval_reward", 1.0}, {"time/eval", 4.0}}};
  const Record last{3, 0.2, {{"time/wait", 0.5}, {"time/train", 1.5}, {"time/step", 2.0}}};
  const std::string alone = Timeline({first, evaluation, last}).html();
  CHECK(count(alone, "<rect ") == 5);
  // 12 s on 1016 units behind 84.
  CHECK(alone.find("<rect class=\"f1\" x=\"84.00\" y=\"0.00\" width=\"169.33\"") != std::string::npos);
  CHECK(alone.find("<rect class=\"f0\" x=\"253.33\" y=\"0.00\" width=\"254.00\"") != std::string::npos);
  CHECK(alone.find("<rect class=\"f6\" x=\"592.00\" y=\"0.00\" width=\"338.67\"") != std::string::npos);
  CHECK(alone.find("steps 1–2: training 3 s") != std::string::npos);
  CHECK(alone.find("step 3: wait for generation 0.5 s") != std::string::npos);
  CHECK(alone.find("training <b>38 %</b>") != std::string::npos);
  CHECK(alone.find(">12 s</text>") != std::string::npos);
  CHECK(alone.find("generator") == std::string::npos);

  Record beside = last;
  for (const auto& [name, seconds] :
       {std::pair("async/generate_s", 1.0), {"async/reward_s", 0.5}, {"async/producer_idle_s", 0.5}})
    beside.values.emplace_back(name, seconds);
  const std::string two = Timeline({beside}).html();
  CHECK(count(two, "<rect ") == 4);
  CHECK(two.find("generation <b>0 %</b>, asynchronously <b>50 %</b>") != std::string::npos);
  CHECK(two.find("rewards <b>0 %</b>, asynchronously <b>25 %</b>") != std::string::npos);
  CHECK(two.find("y=\"34.00\" width=\"508.00\"") != std::string::npos);
}

TEST_CASE("what tells of asynchronous generation has a section of its own, behind the others") {
  rlalgo::run::detail::ReportData data;
  for (const char* name : {"async/staleness/max", "async/generate_s", "reward", "async/queue_wait_s", "reroll_buffered",
                           "my_metric", "async/staleness/mean"}) {
    data.names.emplace_back(name);
    data.points[name] = {{1, 0.5}, {2, 0.25}};
  }
  std::vector<std::string> drawn;
  for (const auto& chart : rlalgo::run::detail::arrange_charts(data)) {
    std::string text = chart.section + ": " + chart.title + ":";
    for (const auto& series : chart.series) text += " " + series.name;
    drawn.push_back(text);
  }
  const std::string beside = "Asynchronous generation: ";
  CHECK(drawn == std::vector<std::string>{"Curves: Reward: reward", "Curves: my_metric: my_metric",
                                          beside + "Staleness, updates: async/staleness/mean async/staleness/max",
                                          beside + "Seconds of waiting: trainer, generator: async/queue_wait_s",
                                          beside + "Seconds per generation: async/generate_s",
                                          beside + "Failed prompts: reroll_buffered"});
}

TEST_CASE("a timeline needs times, and joins the records of a long run") {
  using rlalgo::run::detail::Timeline;
  CHECK(Timeline({}).html().empty());
  CHECK(Timeline({{1, 0.1, {{"loss", 1.0}}}}).html().empty());
  CHECK(Timeline({{1, 0.1, {{"time/train", 1.0}, {"time/step", 1.0}}}}).html().empty());  // nothing to compare
  CHECK(Timeline({{1, 0.1, {{"time/train", no_value}, {"time/step", no_value}}}}).html().empty());
  std::vector<Record> many;
  for (std::int64_t step = 1; step <= 1000; ++step)
    many.push_back({step, 0.0, {{"time/generate", 1.0}, {"time/train", 2.0}, {"time/step", 3.5}}});
  const std::string html = Timeline(many).html();
  CHECK(count(html, "<rect ") == 320);
  CHECK(html.find("steps 1–6: training 12 s") != std::string::npos);
  CHECK(html.find("training <b>57 %</b>") != std::string::npos);
  CHECK(html.find(">58:20</text>") != std::string::npos);
}

TEST_CASE("least and greatest values are a band behind the line of the mean, not lines of their own") {
  rlalgo::run::detail::ReportData data;
  for (const char* prefix : {"completions/", "eval_completions/"})
    for (const auto& [word, value] : {std::pair("mean", 30.0), {"min", 10.0}, {"max", 60.0}}) {
      const std::string name = std::string(prefix) + word + "_length";
      data.names.push_back(name);
      data.points[name] = {{1, value}, {2, value + 4}};
    }
  for (const char* name : {"reward", "reward_std", "sampling/importance_sampling_ratio/max"}) {
    data.names.emplace_back(name);
    data.points[name] = {{1, 0.5}, {3, 0.25}};
  }
  const auto charts = rlalgo::run::detail::arrange_charts(data);
  std::map<std::string, std::size_t> lines;
  std::map<std::string, std::string> drawn;
  for (const auto& chart : charts) {
    lines[chart.title] = chart.series.size();
    drawn[chart.title] = rlalgo::run::detail::ChartDrawing(chart).html();
  }
  CHECK(lines.at("Completion length, tokens") == 2);
  const std::string& length = drawn.at("Completion length, tokens");
  CHECK(count(length, "class=\"band") == 2);
  CHECK(count(length, "data-v=\"30 (10 to 60)|34 (14 to 64)\"") == 2);
  CHECK(count(length, "completions/mean_length, least to greatest <b>34 (14 to 64)</b>") == 2);
  CHECK(length.find("</svg>") < length.find("class=\"legend\""));
  CHECK(drawn.at("Reward").find("data-v=\"0.5 ± 0.5|0.25 ± 0.25\"") != std::string::npos);
  CHECK(lines.at("Reward spread") == 1);
  CHECK(lines.at("Sampler against trainer, ratio") == 1);  // no mean: a line of its own
  CHECK(rlalgo::run::detail::range_band("l", {{1, 0}, {2, 0}, {4, 0}}, "h", {{2, 1}, {3, 1}, {4, 1}}).low.size() == 2);
}

TEST_CASE("the most and least separated pairs are a table of the report") {
  const fake::TempDir dir;
  fake::Run run;
  LoopConfig config = fake::config(dir.path, 2);
  Loop(config, run.callbacks()).run();
  CHECK(report(dir.path).find("separated pairs") == std::string::npos);
  const Json pair = {{"row", 41}, {"margin", -0.25}, {"prompt", "<b>"}, {"chosen", "<b>"}, {"rejected", "<b>"}};
  const Json pairs = {{"step", 2}, {"split", "evaluation"}, {"pairs", 1}, {"most", {pair}}, {"least", {pair}}};
  std::ofstream(dir.path / pairs_file) << pairs.dump();
  const std::string page = report(dir.path);
  CHECK(page.find("Of 1 held-out pairs at step 2") != std::string::npos);
  CHECK(page.find("&lt;b&gt;") != std::string::npos);
  CHECK(count(page, "<td class=\"n\">41</td>") == 2);
  CHECK(count(page, "-0.25") + count(page, "−0.25") == 2);
}

TEST_CASE("every metric is in exactly one chart, the evaluation's beside the training's") {
  rlalgo::run::detail::ReportData data;
  for (const char* name : {"loss",
                           "reward",
                           "reward_std",
                           "rewards/a/mean",
                           "rewards/b/mean",
                           "rewards/a/std",
                           "rewards/chosen",
                           "my/own",
                           "eval_reward",
                           "eval_only",
                           "eval_my/own",
                           "clip_ratio/low_mean",
                           "clip_ratio/low_min",
                           "clip_ratio/high_max",
                           "clip_ratio/region_mean",
                           "time/step",
                           "completions/max_length",
                           "completions/max_terminated_length",
                           "completions/min_length",
                           "completions/mean_length"}) {
    data.names.emplace_back(name);
    data.points[name] = {{1, 1}, {2, 2}};
  }
  std::map<std::string, int> seen;
  std::map<std::string, std::string> chart_of;
  for (const rlalgo::run::detail::Chart& chart : rlalgo::run::detail::arrange_charts(data))
    for (const rlalgo::run::detail::Series& series : chart.series)
      for (const std::string& name : {series.name, series.band.low_name, series.band.high_name})
        if (!name.empty()) ++seen[name], chart_of[name] = chart.title;
  CHECK(seen.size() == data.names.size());
  for (const auto& [name, times] : seen) {
    INFO(name);
    CHECK(times == 1);
  }
  CHECK(chart_of["eval_reward"] == "Reward");
  CHECK(chart_of["rewards/a/mean"] == chart_of["rewards/b/mean"]);
  CHECK(chart_of["eval_my/own"] == "my/own");
  CHECK(chart_of["rewards/chosen"] == "Rewards of chosen and rejected");
}

TEST_CASE("what an environment said stands out from what the model drew") {
  const fake::TempDir dir;
  std::ofstream(dir.path / "metrics.jsonl") << R"({"step": 1, "epoch": 0, "reward": 1.0, "loss": 1})"
                                            << "\n";
  SamplesLog samples(dir.path);
  Sample plain{"p", "alone", {}, 0, false, {}}, played{"p", "7<higher>8", {}, 0, false, {}};
  samples.append(SamplesLog::lines(1, {plain}));
  CHECK(report(dir.path).find("class=\"told\"") == std::string::npos);
  played.turns = {{true, "7"}, {false, "<higher>"}, {true, "8"}};
  samples.append(SamplesLog::lines(1, {played}));
  const std::string page = report(dir.path);
  CHECK(page.find("<div class=\"text\">7<span class=\"told\" title=\"environment\">&lt;higher&gt;</span>8</div>") !=
        std::string::npos);
  CHECK(page.find("<div class=\"text\">alone</div>") != std::string::npos);
  CHECK(page.find("ground of its own") != std::string::npos);
}

TEST_CASE("text of models and users cannot become markup") {
  CHECK(rlalgo::run::detail::escape_html("a<b>&\"'\n\t") == "a&lt;b&gt;&amp;&quot;&#39;\n\t");
  CHECK(rlalgo::run::detail::escape_html(std::string("\x01\x7f", 2)) == "\xEF\xBF\xBD\xEF\xBF\xBD");
  const fake::TempDir dir;
  std::ofstream(dir.path / "metrics.jsonl")
      << R"({"step": 1, "epoch": 0, "rewards/<img src=x onerror=1>/mean": 1.0, "loss": 1})"
      << "\n";
  SamplesLog log(dir.path);
  log.append(SamplesLog::lines(
      1, {{"</div><b>p", "<img src=x onerror=alert(1)>", {{"<i>f", 1.0}}, 0.5, false, {{"<u>c", "<s>"}, {"n", 7}}}}));
  const std::string page = report(dir.path);
  for (const char* markup : {"<img", "<b>p", "<i>f", "<u>c", "<s>"}) CHECK(page.find(markup) == std::string::npos);
  CHECK(page.find("&lt;img src=x onerror=alert(1)&gt;") != std::string::npos);
  CHECK(page.find("<th>n</th>") != std::string::npos);
  CHECK(page.find("<div class=\"text\">7</div>") != std::string::npos);
}

TEST_CASE("a run in progress, a killed run, an empty run and a foreign directory") {
  const fake::TempDir dir;
  CHECK(fake::error_of([&] { write_report(dir.path); }) == "run.10");
  std::ofstream(dir.path / "run.json") << "{}";  // no step has been logged yet
  CHECK(report(dir.path).find("Nothing has been logged yet") != std::string::npos);
  std::filesystem::remove(dir.path / "run.json");
  std::ofstream(dir.path / "metrics.jsonl") << "";
  CHECK(report(dir.path).find("Nothing has been logged yet") != std::string::npos);
  std::ofstream(dir.path / "metrics.jsonl") << "{\"step\": 1, \"epoch\": 0.5, \"loss\": null}\n{\"step\": 2, "
                                               "\"epoch\": 1.0, \"loss\": 0.25}\n{\"step\": 3, \"ep";
  const std::string page = report(dir.path);
  CHECK(page.find(">Loss<") != std::string::npos);
  CHECK(page.find(">0.25<") != std::string::npos);
  CHECK(page.find("nan") == std::string::npos);
  std::ofstream(dir.path / "metrics.jsonl") << "{\"step\": 1}\nnonsense\n{\"step\": 2}\n";
  CHECK(fake::error_of([&] { write_report(dir.path); }) == "run.11");
  CHECK_THROWS_WITH(write_report(dir.path), Catch::Contains("metrics.jsonl:2"));
}

TEST_CASE("a long run gives a page of bounded size") {
  const fake::TempDir dir;
  MetricsLog log(dir.path);
  SamplesLog samples(dir.path);
  for (int step = 1; step <= 3000; ++step) {
    log.append({step, 0.1, {{"loss", 1.0 / step}, {"reward", step / 3000.0}, {"reward_std", 0.1}}});
    if (step % 30 == 0) samples.append(SamplesLog::lines(step, {{"p", "c", {}, 0, false, {}}}));
  }
  const std::string page = report(dir.path);
  CHECK(page.size() < 200000);
  CHECK(count(page, "<summary>Step ") == 40);
  CHECK(page.find("40 of 100 logged steps") != std::string::npos);
  CHECK(page.find("<summary>Step 30<") != std::string::npos);
  CHECK(page.find("<summary>Step 3000<") != std::string::npos);
}

TEST_CASE("axes have round numbers inside their range") {
  CHECK(rlalgo::run::detail::ticks(0, 1, 4, false) == std::vector<double>{0, 0.5, 1});
  CHECK(rlalgo::run::detail::ticks(0, 100, 5, true) == std::vector<double>{0, 20, 40, 60, 80, 100});
  CHECK(rlalgo::run::detail::ticks(1, 3, 5, true) == std::vector<double>{1, 2, 3});
  for (const double scale : {1e-9, 1.0, 1e9})
    for (const double v : rlalgo::run::detail::ticks(-0.3 * scale, 0.7 * scale, 4, false))
      CHECK((v >= -0.3001 * scale && v <= 0.7001 * scale));
  const std::vector<rlalgo::run::detail::Point> points = {{1, 1}, {2, 3}, {3, 5}, {4, 7}};
  const auto thin = rlalgo::run::detail::thinned(points, 2);
  REQUIRE(thin.size() == 2);
  CHECK(thin[0].value == 2.0);
  CHECK(thin[1].value == 6.0);
  CHECK(thin[1].step == 4.0);
  // At the second point: forward sum 0.25·1 + 0.5·3 with weight 0.75, backward sum 0.5·3 with weight 0.5.
  CHECK(rlalgo::run::detail::smoothed({{1, 1}, {2, 3}}, 0.5)[1].value == Approx((0.25 * 1 + 0.5 * 3 + 0.5 * 3) / 1.25));
  std::vector<rlalgo::run::detail::Point> noise;
  std::vector<rlalgo::run::detail::Point> schedule;
  for (int i = 0; i < 50; ++i) {
    noise.push_back({static_cast<double>(i), static_cast<double>(i % 2)});
    schedule.push_back({static_cast<double>(i), static_cast<double>(i < 10 ? i : 60 - i)});
  }
  CHECK(rlalgo::run::detail::is_noisy(noise));
  CHECK_FALSE(rlalgo::run::detail::is_noisy(schedule));
}

TEST_CASE("feature matching has a section of its own, and its samples stand below context and ground truth") {
  const fake::TempDir dir;
  fake::Run run;
  Callbacks callbacks = run.callbacks();
  callbacks.train_step = [&](std::int64_t step) {
    StepResult result = run.train_step(step);
    for (const char* name : {"alignment", "diversity", "cfm_loss", "ce_loss", "mean_reward", "num_blocks"})
      result.metrics.mean(std::string("ebft/") + name, 0.5 + 0.1 * static_cast<double>(step), 1.0);
    return result;
  };
  callbacks.samples = [](std::size_t limit) {
    std::vector<Sample> out;
    for (const char* drawn : {"a mat", "a hat", "the <b>"})
      if (out.size() < limit)
        out.push_back({"The cat sat on",
                       drawn,
                       {{"alignment", 1.25}, {"diversity", 0.5}, {"reward", 0.75}},
                       0.5,
                       false,
                       {{"ground_truth", "the mat & more"}}});
    return out;
  };
  LoopConfig config = fake::config(dir.path, 3);
  config.report = true;
  Loop(config, callbacks).run();
  const std::string page = fake::read(dir.path / "report.html");
  CHECK(count(page, "<h2>Feature matching</h2>") == 1);
  CHECK(page.find("<h2>Feature matching</h2>") < page.find("<h2>Curves</h2>"));
  CHECK(count(page, "<h2>Curves</h2>") == 1);
  for (const char* title : {">Alignment with the ground truth, 2·cos<", ">Diversity: similarity among the samples<",
                            ">Distance to the ground truth (CFM)<", ">Cross-entropy of the ground truth, nats<"}) {
    INFO(title);
    CHECK(page.find(title) > page.find("<h2>Feature matching</h2>"));
    CHECK(page.find(title) < page.find("<h2>Curves</h2>"));
  }
  CHECK(count(page, "<div class=\"charts\">") == 2);
  CHECK(page.find("<h2>Sample blocks</h2>") != std::string::npos);
  // Once for each of the two logged steps, not once for each sample.
  CHECK(count(page, "the mat &amp; more") == 2);
  CHECK(count(page, "<div class=\"text prompt\">The cat sat on</div>") == 2);
  CHECK(count(page, "<th>ground_truth</th>") == 0);
  CHECK(count(page, "a hat") == 2);
  CHECK(count(page, "the &lt;b&gt;") == 2);
  CHECK(count(page, "<th class=\"n\">alignment</th>") == 2);
  CHECK(page.find("mean reward 0.65") != std::string::npos);
}

TEST_CASE("runs beside each other: curves overlaid, last and best values, and the settings that differ") {
  const fake::TempDir dir;
  for (const auto& [name, rate] : {std::pair("one", 0.1), std::pair("two", 0.2)}) {
    fake::Run run;
    LoopConfig config = fake::config(dir.path / name, 6);
    config.settings = {{"learning_rate", rate}, {"seed", 42}, {"<b>", name}};
    Loop(config, run.callbacks()).run();
  }
  const std::vector<fs::path> both = {dir.path / "one", dir.path / "two"};
  const std::string page = report_html(both);
  CHECK(page.find("<h1>one · two</h1>") != std::string::npos);
  CHECK(count(page, "data-n=\"one\"") == count(page, "data-n=\"two\""));
  CHECK(count(page, "data-n=\"one\"") > 5);
  CHECK(page.find("<td>learning_rate</td><td class=\"n\">0.1</td><td class=\"n\">0.2</td>") != std::string::npos);
  CHECK(page.find("<td>seed</td>") == std::string::npos);
  CHECK(page.find("<td>&lt;b&gt;</td>") != std::string::npos);
  CHECK(page.find(" at step ") != std::string::npos);
  CHECK(page.find("setInterval") == std::string::npos);  // a file asks nobody
  const std::vector<fs::path> twice = {dir.path / "one", dir.path / "two" / ".." / "one"};
  CHECK(report_html(twice).find("All settings are the same") != std::string::npos);
  CHECK(count(report_html(twice), "data-n=\"one\"") == 0);  // two runs of one name have their whole paths
}

TEST_CASE("a page that is served asks for its stamp, which is another whenever a log has changed") {
  const fake::TempDir dir;
  fake::Run run;
  Loop(fake::config(dir.path, 6), run.callbacks()).run();
  const std::vector<fs::path> one = {dir.path};
  const std::string stamp = report_stamp(one);
  CHECK(report_stamp(one) == stamp);
  const std::string page = report_html(one, stamp);
  CHECK(page.find("data-stamp=\"" + stamp + "\"") != std::string::npos);
  CHECK(page.find("fetch('stamp')") != std::string::npos);
  CHECK(page.find("href=") == std::string::npos);  // no folder is behind it
  CHECK(count(page, "<script") == 1);
  std::ofstream(dir.path / "metrics.jsonl", std::ios::app) << "{\"step\": 7, \"epoch\": 0.1, \"loss\": 1.0}\n";
  CHECK(report_stamp(one) != stamp);
}

TEST_CASE("an axis has two numbers at least") {
  for (const auto& [low, high] :
       {std::pair(0.601, 0.676), std::pair(0.1, 0.13), std::pair(-3e-9, 5e-9), std::pair(0.0, 1.0)}) {
    INFO(low << " to " << high);
    CHECK(rlalgo::run::detail::ticks(low, high, 4, false).size() >= 2);
  }
}
