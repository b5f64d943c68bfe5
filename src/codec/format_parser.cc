// Format strings: name[bits][:option=value[,option=value]…]. See FormatSpec.
#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <string>
#include <utility>

#include "format_table.h"
#include "kvpool/codec/format_spec.h"

namespace kvpool {
namespace {

using internal::FormatRow;
using internal::kFormats;

struct OptionName {
  internal::Option option;
  std::string_view key;
  std::string_view values;  // for texts
};

constexpr OptionName kOptionNames[] = {
    {internal::kGroupOption, "g", ""},  // the values are the row's
    {internal::kGainOption, "gain", "mse, ip, norm"},
    {internal::kCenterOption, "center", "0, 1"},
    {internal::kSketchOption, "sketch", "orth, gauss"},
    {internal::kRowsOption, "m", "a multiple of 16"},
    {internal::kSeedOption, "seed", "0 to 2^64 - 1"},
    {internal::kLevelsOption, "levels", "four digits from 1 to 4"},
    {internal::kNoiseOption, "noise", "1 to 8"},
    {internal::kSignalOption, "signal", "a number of channels above 0"},
};

constexpr std::pair<Gain, std::string_view> kGainNames[] = {
    {Gain::kMse, "mse"}, {Gain::kIp, "ip"}, {Gain::kNorm, "norm"}};
constexpr std::pair<SketchKind, std::string_view> kSketchNames[] = {
    {SketchKind::kOrthogonal, "orth"}, {SketchKind::kGaussian, "gauss"}};

std::string valid_formats() {
  std::string list;
  for (const FormatRow& row : kFormats) {
    if (!list.empty()) list += ", ";
    list += row.name;
    for (std::size_t i = 0; i < row.bits.size(); ++i) {
      if (i > 0) list += '/';
      list += row.bits[i];
    }
    if (!row.alias.empty()) list += " (alias " + std::string(row.alias) + ")";
  }
  return list;
}

[[noreturn]] void refuse_format(std::string_view text) {
  throw std::invalid_argument("[parse_format] unknown format \"" + std::string(text) +
                              "\"; valid: " + valid_formats());
}

std::string_view values_of(const FormatRow& row, const OptionName& name) {
  return name.option == internal::kGroupOption ? row.groups : name.values;
}

[[noreturn]] void refuse_option(std::string_view text, const FormatRow& row,
                                std::string_view assignment) {
  std::string valid;
  for (const OptionName& name : kOptionNames) {
    if ((row.options & name.option) == 0) continue;
    if (!valid.empty()) valid += "; ";
    valid += std::string(name.key) + "= " + std::string(values_of(row, name));
  }
  throw std::invalid_argument("[parse_format] \"" + std::string(text) + "\": bad option \"" +
                              std::string(assignment) + "\"; valid for " + std::string(row.name) +
                              ": " + (valid.empty() ? "none" : valid));
}

template <typename Number>
bool parse_number(std::string_view text, Number* number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && rest == end;
}

template <typename Value, std::size_t kSize>
bool parse_name(const std::pair<Value, std::string_view> (&names)[kSize], std::string_view text,
                Value* value) {
  for (const auto& [candidate, name] : names) {
    if (name != text) continue;
    *value = candidate;
    return true;
  }
  return false;
}

template <typename Value, std::size_t kSize>
std::string name_of(const std::pair<Value, std::string_view> (&names)[kSize], Value value) {
  std::string found;
  for (const auto& [candidate, name] : names) {
    if (candidate == value) found = name;
  }
  return found;
}

// Whether a number stands in a list like "16, 32, 64".
bool listed(std::string_view list, std::size_t number) {
  const std::string padded = ", " + std::string(list) + ",";
  return padded.find(", " + std::to_string(number) + ",") != std::string::npos;
}

bool parse_levels(std::string_view text, FormatSpec* spec) {
  if (text.size() != spec->level_bits.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] < '1' || text[i] > '4') return false;
    spec->level_bits[i] = static_cast<std::uint8_t>(text[i] - '0');
  }
  return true;
}

bool set_option(const FormatRow& row, internal::Option option, std::string_view value,
                FormatSpec* spec) {
  switch (option) {
    case internal::kGroupOption:
      return parse_number(value, &spec->group) && listed(row.groups, spec->group);
    case internal::kGainOption:
      return parse_name(kGainNames, value, &spec->gain);
    case internal::kCenterOption:
      spec->center = value == "1";
      return value == "0" || value == "1";
    case internal::kSketchOption:
      return parse_name(kSketchNames, value, &spec->sketch);
    case internal::kRowsOption:
      return parse_number(value, &spec->sketch_rows) && spec->sketch_rows > 0 &&
             spec->sketch_rows % 16 == 0;
    case internal::kSeedOption:
      return parse_number(value, &spec->seed);
    case internal::kLevelsOption:
      return parse_levels(value, spec);
    case internal::kNoiseOption:
      return parse_number(value, &spec->noise_bits) && spec->noise_bits >= 1 &&
             spec->noise_bits <= 8;
    case internal::kSignalOption:
      return parse_number(value, &spec->signal_channels) && spec->signal_channels > 0;
    case internal::kNoOption:
      break;
  }
  return false;
}

const OptionName* find_option(const FormatRow& row, std::string_view key) {
  for (const OptionName& name : kOptionNames) {
    if (name.key == key && (row.options & name.option) != 0) return &name;
  }
  return nullptr;
}

// The row and the bits of a name with no options; null where there is none.
const FormatRow* find_row(std::string_view name, std::size_t* bits) {
  for (const FormatRow& row : kFormats) {
    if (row.bits.empty()) {
      if (name == row.name) return &row;
      continue;
    }
    if (name.empty() || row.bits.find(name.back()) == std::string_view::npos) continue;
    const std::string_view stem = name.substr(0, name.size() - 1);
    if (stem != row.name && (row.alias.empty() || stem != row.alias)) continue;
    *bits = static_cast<std::size_t>(name.back() - '0');
    return &row;
  }
  return nullptr;
}

FormatSpec defaults(const FormatRow& row, std::size_t bits) {
  FormatSpec spec;
  spec.method = row.method;
  spec.bits = bits;
  spec.group = row.default_group;
  if (row.method == Method::kSpectral) spec.noise_bits = bits;
  return spec;
}

}  // namespace

FormatSpec parse_format(std::string_view text) {
  const std::size_t colon = text.find(':');
  std::size_t bits = 0;
  const FormatRow* row = find_row(text.substr(0, colon), &bits);
  if (row == nullptr) refuse_format(text);
  FormatSpec spec = defaults(*row, bits);
  if (colon == std::string_view::npos) return spec;

  std::string_view rest = text.substr(colon + 1);
  std::uint32_t given = 0;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view assignment = rest.substr(0, comma);
    const std::size_t equals = assignment.find('=');
    const OptionName* name = find_option(*row, assignment.substr(0, equals));
    if (name == nullptr || equals == std::string_view::npos || (given & name->option) != 0 ||
        !set_option(*row, name->option, assignment.substr(equals + 1), &spec)) {
      refuse_option(text, *row, assignment);
    }
    given |= name->option;
    if (comma == std::string_view::npos) return spec;
    rest = rest.substr(comma + 1);
  }
}

std::string to_string(const FormatSpec& spec) {
  const FormatRow& row = internal::format_row(spec.method);
  const FormatSpec usual = defaults(row, spec.bits);
  std::string text(row.name);
  if (spec.bits != 0) text += std::to_string(spec.bits);
  char separator = ':';
  const auto add = [&](std::string_view key, const std::string& value) {
    text += separator;
    text += key;
    text += '=';
    text += value;
    separator = ',';
  };
  if (spec.group != usual.group) add("g", std::to_string(spec.group));
  if (spec.gain != usual.gain) add("gain", name_of(kGainNames, spec.gain));
  if (spec.center) add("center", "1");
  if (spec.sketch != usual.sketch) add("sketch", name_of(kSketchNames, spec.sketch));
  if (spec.sketch_rows != 0) add("m", std::to_string(spec.sketch_rows));
  if (spec.level_bits != usual.level_bits) {
    std::string levels;
    for (const std::uint8_t level : spec.level_bits) levels += std::to_string(level);
    add("levels", levels);
  }
  if (spec.noise_bits != usual.noise_bits) add("noise", std::to_string(spec.noise_bits));
  if (spec.signal_channels != 0) add("signal", std::to_string(spec.signal_channels));
  if (spec.seed != usual.seed) add("seed", std::to_string(spec.seed));
  return text;
}

}  // namespace kvpool
