// Arguments as Python callers give them, turned into ours with errors that show the value.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

namespace kvpool::python {

// `value` as text for an error message: its repr, shortened.
std::string shown(nanobind::handle value);

// Any integer (int, numpy's, whatever has __index__). TypeError for others, ValueError outside
// 64 bits. `what` begins the message: "[PoolConfig] block_size".
std::int64_t to_int64(nanobind::handle value, const char* what);

}  // namespace kvpool::python
