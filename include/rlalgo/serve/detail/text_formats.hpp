// Expressions for the formats of texts that a JSON schema may name. Each allows a part of what the format does, all of which
// readers accept: dates that exist, hosts of ASCII, addresses without comments.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rlalgo::serve::detail {

// Formats that say how a text is shown or kept, not what may stand in it.
[[nodiscard]] inline bool is_free_format(std::string_view name) {
  for (const char* free : {"password", "binary", "path", "file-path", "directory-path", "textarea", "markdown"})
    if (name == free) return true;
  return false;
}

inline constexpr const char* known_formats =
    "date, time, date-time, duration, email, hostname, ipv4, ipv6, uri, uri-reference, uuid, json-pointer, byte, "
    "password, "
    "binary";

// nullopt: no such format is known.
[[nodiscard]] inline std::optional<std::string> format_expression(std::string_view name) {
  const std::string leap = "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][48]|[2468]0|[13579][26])00)";
  const std::string day =
      "(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((01|03|05|07|08|10|12)-(0[1-9]|[12][0-9]|3[01])|"
      "(04|06|09|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))";
  const std::string time =
      "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
  const std::string date = day + "|(" + leap + ")-02-29)";
  const std::string label = "[a-z0-9]{1,20}(-[a-z0-9]{1,20})?", host = label + "(\\." + label + "){1,3}";
  const std::string octet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
  const std::string segment = "[A-Za-z0-9._~-]*";
  if (name == "date") return date;
  if (name == "time") return time;
  if (name == "date-time") return date + "T" + time;
  if (name == "duration")
    return "P([0-9]{1,4}D(T[0-9]{1,2}H([0-9]{1,2}M([0-9]{1,2}S)?)?)?|[0-9]{1,3}W|T([0-9]{1,2}H([0-9]{1,2}M([0-9]{1,2}S)"
           "?)?|"
           "[0-9]{1,2}M([0-9]{1,2}S)?|[0-9]{1,2}S))";
  if (name == "email" || name == "idn-email") return "[A-Za-z0-9_+-]{1,20}(\\.[A-Za-z0-9_+-]{1,20}){0,2}@" + host;
  if (name == "hostname" || name == "idn-hostname") return host;
  if (name == "ipv4") return octet + "(\\." + octet + "){3}";
  if (name == "ipv6") return "[0-9a-f]{1,4}(:[0-9a-f]{1,4}){7}";
  if (name == "uri" || name == "iri" || name == "url" || name == "uri-reference" || name == "iri-reference")
    return "https?://" + host + "(:[1-9][0-9]{0,3})?(/" + segment + ")*";
  if (name == "uuid") return "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}";
  if (name == "json-pointer") return "(/[A-Za-z0-9_.-]*)*";
  if (name == "byte" || name == "base64") return "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
  return std::nullopt;
}

}  // namespace rlalgo::serve::detail
