// Jinja2's filters over lists: map, select, sort, join, groupby …
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rlalgo/text/detail/jinja_methods.hpp>
#include <rlalgo/text/detail/jinja_value.hpp>
#include <rlalgo/text/detail/python_text.hpp>

namespace rlalgo::text::detail {

using FilterBody = Value (*)(Runtime&, const Value&, const Arguments&);
using FilterTable = std::vector<std::pair<std::string_view, FilterBody>>;

class ListFilters {
 public:
  static FilterTable all() {
    return {
        {"list", [](Runtime&, const Value& v, const Arguments&) -> Value { return iterate(v).shared(); }},
        {"first",
         [](Runtime&, const Value& v, const Arguments&) -> Value {
           const auto items = iterate(v);
           return items->empty() ? Value::undefined("No first item, sequence was empty.") : items->front();
         }},
        {"last",
         [](Runtime&, const Value& v, const Arguments&) -> Value {
           if (v.as<Generator>() != nullptr) fail("'generator' object is not reversible");
           const auto items = iterate(v);
           return items->empty() ? Value::undefined("No last item, sequence was empty.") : items->back();
         }},
        {"join", join},
        {"items",
         [](Runtime&, const Value& v, const Arguments&) -> Value {
           if (v.is_undefined()) return generator({});
           if (!v.is_dict()) fail("Can only get item pairs from a mapping.");
           List pairs;
           for (const auto& [key, value] : v.dict().entries) pairs.push_back(Value::tuple({key, value}));
           return generator(std::move(pairs));
         }},
        {"dictsort", dictsort},
        {"sort", sort},
        {"unique", unique},
        {"reverse",
         [](Runtime&, const Value& v, const Arguments&) -> Value {
           const bool text = v.is_string();
           if (v.as<Generator>() != nullptr) fail("'generator' object is not reversible");
           const auto items = iterate(v);
           List reversed(items->rbegin(), items->rend());
           if (!text) return generator(std::move(reversed));
           std::string out;
           for (const Value& c : reversed) out += c.string();
           return out;
         }},
        {"min", [](Runtime& r, const Value& v, const Arguments& a) { return extreme(r, v, a, false); }},
        {"max", [](Runtime& r, const Value& v, const Arguments& a) { return extreme(r, v, a, true); }},
        {"sum", sum},
        {"map", map},
        {"select", [](Runtime& r, const Value& v, const Arguments& a) { return select(r, v, a, false, true); }},
        {"reject", [](Runtime& r, const Value& v, const Arguments& a) { return select(r, v, a, false, false); }},
        {"selectattr", [](Runtime& r, const Value& v, const Arguments& a) { return select(r, v, a, true, true); }},
        {"rejectattr", [](Runtime& r, const Value& v, const Arguments& a) { return select(r, v, a, true, false); }},
        {"groupby", groupby},
        {"batch", batch},
        {"slice", slice},
    };
  }

 private:
  // item.a.b or item.0.b; null key: the item itself.
  [[gnu::cold]] static Value by_path(Runtime& runtime, Value item, const Value& path,
                                     const Value* otherwise = nullptr) {
    if (path.is_none()) return item;
    std::vector<Value> keys;
    if (path.is_integral()) {
      keys.push_back(path);
    } else {
      for (const std::string& part : split_by(path.text(), ".", -1, false)) {
        const bool digits =
            !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
        keys.push_back(digits ? Value(static_cast<std::int64_t>(std::stoll(part))) : Value(part));
      }
    }
    for (const Value& key : keys) {
      item = runtime.item(item, key);
      if (otherwise != nullptr && item.is_undefined()) item = *otherwise;
    }
    return item;
  }
  [[gnu::cold]] static Value folded(const Value& v, bool case_sensitive) {
    return v.is_string() && !case_sensitive ? Value(change_case(v.string(), Case::lower)) : v;
  }
  static Arguments rest(const Arguments& a, std::size_t from) {
    Arguments out;
    for (std::size_t i = from; i < a.positional.size(); ++i) out.positional.push_back(a.positional[i]);
    out.named = a.named;
    return out;
  }

  // join(d='', attribute=None)
  [[gnu::cold]] static Value join(Runtime& runtime, const Value& v, const Arguments& a) {
    const std::string glue = a.get(0, "d", "").text();
    const Value attribute = a.get(1, "attribute");
    std::string out;
    bool first = true;
    for (const Value& item : iterate(v)) {
      const std::string text = by_path(runtime, item, attribute).text();
      charge_bytes(glue.size() + text.size());
      if (!std::exchange(first, false)) out += glue;
      out += text;
    }
    return out;
  }

  // dictsort(case_sensitive=False, by='key', reverse=False)
  [[gnu::cold]] static Value dictsort(Runtime&, const Value& v, const Arguments& a) {
    if (!v.is_dict()) fail("dictsort needs a mapping, not '" + v.type_name() + "'");
    const bool sensitive = a.get(0, "case_sensitive").truthy(), reverse = a.get(2, "reverse").truthy();
    const std::string by = a.get(1, "by", "key").text();
    if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
    std::vector<std::pair<Value, Value>> keyed;
    for (const auto& [key, value] : v.dict().entries)
      keyed.emplace_back(folded(by == "key" ? key : value, sensitive), Value::tuple({key, value}));
    return sorted(keyed, reverse);
  }
  [[gnu::cold]] static Value sorted(const std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
    List out;
    for (const std::size_t i : stable_order(keyed.size(), [&](std::size_t x, std::size_t y) {
           charge(1);
           return reverse ? less(keyed[y].first, keyed[x].first) : less(keyed[x].first, keyed[y].first);
         })) {
      out.push_back(keyed[i].second);
    }
    return out;
  }

  // sort(reverse=False, case_sensitive=False, attribute=None)
  [[gnu::cold]] static Value sort(Runtime& runtime, const Value& v, const Arguments& a) {
    const bool sensitive = a.get(1, "case_sensitive").truthy();
    const Value attribute = a.get(2, "attribute");
    std::vector<std::pair<Value, Value>> keyed;
    for (const Value& item : iterate(v)) {
      if (attribute.is_string() && attribute.string().find(',') != std::string::npos) {
        List keys;
        for (const std::string& part : split_by(attribute.string(), ",", -1, false))
          keys.push_back(folded(by_path(runtime, item, Value(part)), sensitive));
        keyed.emplace_back(Value(std::move(keys)), item);
      } else {
        keyed.emplace_back(folded(by_path(runtime, item, attribute), sensitive), item);
      }
    }
    charge(keyed.size() * 4);
    return sorted(keyed, a.get(0, "reverse").truthy());
  }

  // unique(case_sensitive=False, attribute=None)
  [[gnu::cold]] static Value unique(Runtime& runtime, const Value& v, const Arguments& a) {
    const bool sensitive = a.get(0, "case_sensitive").truthy();
    const Value attribute = a.get(1, "attribute");
    List seen, out;
    for (const Value& item : iterate(v)) {
      charge(seen.size() / 16 + 1);
      Value key = folded(by_path(runtime, item, attribute), sensitive);
      if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return s.equals(key); })) continue;
      seen.push_back(std::move(key));
      out.push_back(item);
    }
    return generator(std::move(out));
  }

  // min/max(case_sensitive=False, attribute=None)
  [[gnu::cold]] static Value extreme(Runtime& runtime, const Value& v, const Arguments& a, bool largest) {
    const bool sensitive = a.get(0, "case_sensitive").truthy();
    const Value attribute = a.get(1, "attribute");
    const auto items = iterate(v);
    if (items->empty()) return Value::undefined("No aggregated item, sequence was empty.");
    std::size_t best = 0;
    Value best_key = folded(by_path(runtime, (*items)[0], attribute), sensitive);
    for (std::size_t i = 1; i < items->size(); ++i) {
      charge(1);
      Value key = folded(by_path(runtime, (*items)[i], attribute), sensitive);
      if (largest ? less(best_key, key) : less(key, best_key)) best = i, best_key = std::move(key);
    }
    return (*items)[best];
  }

  // sum(attribute=None, start=0)
  [[gnu::cold]] static Value sum(Runtime& runtime, const Value& v, const Arguments& a) {
    const Value attribute = a.get(0, "attribute"), start = a.get(1, "start", 0);
    bool real = start.is_float();
    double total = start.is_number() ? start.real() : 0.0;
    std::int64_t exact = start.is_integral() ? start.integer() : 0;
    for (const Value& item : iterate(v)) {
      charge(1);
      const Value value = by_path(runtime, item, attribute);
      value.require_defined();
      if (!value.is_number()) fail("unsupported operand type(s) for +: 'int' and '" + value.type_name() + "'");
      real |= value.is_float();
      total += value.real();
      if (value.is_integral() && __builtin_add_overflow(exact, value.integer(), &exact))
        fail("an integer above 64 bits");
    }
    return real ? Value(total) : Value(exact);
  }

  // map(filter, …) or map(attribute=…, default=…)
  [[gnu::cold]] static Value map(Runtime& runtime, const Value& v, const Arguments& a) {
    List out;
    if (!v.truthy()) return generator({});  // numbers and none too
    if (a.positional.empty()) {
      const Value* attribute = a.find(0, "attribute");
      if (attribute == nullptr) fail("map requires a filter argument");
      const Value* otherwise = a.find(1, "default");
      for (const Value& item : iterate(v)) out.push_back(by_path(runtime, item, *attribute, otherwise));
    } else {
      const std::string& name = string_argument(&a.positional[0], "map");
      for (const Value& item : iterate(v)) out.push_back(runtime.filter(name, item, rest(a, 1)));
    }
    charge(out.size());
    return generator(std::move(out));
  }

  // select(test, …); selectattr(attribute, test, …); without a test: truth.
  [[gnu::cold]] static Value select(Runtime& runtime, const Value& v, const Arguments& a, bool by_attribute,
                                    bool keep) {
    const std::size_t first = by_attribute ? 1 : 0;
    if (by_attribute && a.positional.empty()) fail("Missing parameter for attribute name");
    if (!v.truthy()) return generator({});
    List out;
    for (const Value& item : iterate(v)) {
      charge(1);
      const Value tested = by_attribute ? by_path(runtime, item, a.positional[0]) : item;
      const bool passed = a.positional.size() > first ? runtime.test(string_argument(&a.positional[first], "select"),
                                                                     tested, rest(a, first + 1))
                                                      : tested.truthy();
      if (passed == keep) out.push_back(item);
    }
    return generator(std::move(out));
  }

  // groupby(attribute, default=None, case_sensitive=False): [(key, items)], sorted by key
  [[gnu::cold]] static Value groupby(Runtime& runtime, const Value& v, const Arguments& a) {
    const Value attribute = a.get(0, "attribute");
    const Value* otherwise = a.find(1, "default");
    const bool sensitive = a.get(2, "case_sensitive").truthy();
    std::vector<std::pair<Value, Value>> keyed;
    for (const Value& item : iterate(v)) {
      charge(4);
      const Value key = by_path(runtime, item, attribute, otherwise);
      keyed.emplace_back(folded(key, sensitive), Value::tuple({key, item}));
    }
    const Value ordered = sorted(keyed, false);
    List groups, members;
    Value group_key, first_key;
    const auto close = [&] {
      if (!members.empty()) groups.push_back(Value::tuple({first_key, Value(std::exchange(members, {}))}));
    };
    for (const Value& pair : ordered.list()) {
      const Value key = folded(pair.list()[0], sensitive);
      if (members.empty() || !key.equals(group_key)) {
        close();
        group_key = key;
        first_key = pair.list()[0];
      }
      members.push_back(pair.list()[1]);
    }
    close();
    return groups;
  }

  // batch(linecount, fill_with=None)
  [[gnu::cold]] static Value batch(Runtime&, const Value& v, const Arguments& a) {
    const std::int64_t size = integer_argument(a.get(0, "linecount"), "linecount");
    const Value fill = a.get(1, "fill_with");
    if (size < 1 || size > 100'000) fail("batch: linecount must be from 1 to 100,000");
    List out, row;
    for (const Value& item : iterate(v)) {
      charge(1);
      if (static_cast<std::int64_t>(row.size()) == size) out.push_back(Value(std::exchange(row, {})));
      row.push_back(item);
    }
    if (!row.empty()) {
      while (!fill.is_none() && static_cast<std::int64_t>(row.size()) < size) row.push_back(fill);
      out.push_back(Value(std::move(row)));
    }
    charge(out.size());
    return generator(std::move(out));
  }

  // slice(slices, fill_with=None): columns
  [[gnu::cold]] static Value slice(Runtime&, const Value& v, const Arguments& a) {
    const std::int64_t slices = integer_argument(a.get(0, "slices"), "slices");
    const Value fill = a.get(1, "fill_with");
    if (slices < 1 || slices > 100'000) fail("slice: the number of slices must be from 1 to 100,000");
    const auto items = iterate(v);
    const auto count = static_cast<std::int64_t>(items->size());
    const std::int64_t each = count / slices, longer = count % slices;
    List out;
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < slices; ++i) {
      const std::int64_t end = at + each + (i < longer ? 1 : 0);
      List column(items->begin() + at, items->begin() + end);
      if (!fill.is_none() && i >= longer) column.push_back(fill);
      at = end;
      out.push_back(Value(std::move(column)));
    }
    charge(out.size());
    return generator(std::move(out));
  }
};

inline FilterTable list_filters() { return ListFilters::all(); }

}  // namespace rlalgo::text::detail
