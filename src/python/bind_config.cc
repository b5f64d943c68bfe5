#include <nanobind/nanobind.h>
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>

#include "arguments.h"
#include "bindings.h"
#include "kvpool/pool/pool_config.h"

namespace nb = nanobind;

namespace kvpool::python {
namespace {

PoolConfig make_config(nb::handle block_size, nb::handle n_blocks, bool separate_kv,
                       bool grow_on_exhaustion, nb::handle max_blocks) {
  PoolConfig config;
  config.block_size = to_int64(block_size, "[PoolConfig] block_size");
  config.n_blocks = to_int64(n_blocks, "[PoolConfig] n_blocks");
  config.separate_kv = separate_kv;
  config.grow_on_exhaustion = grow_on_exhaustion;
  if (!max_blocks.is_none()) config.max_blocks = to_int64(max_blocks, "[PoolConfig] max_blocks");
  config.validate();
  return config;
}

nb::tuple fields(const PoolConfig& config) {
  return nb::make_tuple(config.block_size, config.n_blocks, config.separate_kv,
                        config.grow_on_exhaustion, config.max_blocks);
}

}  // namespace

void bind_config(nb::module_& m) {
  m.attr("DEFAULT_BLOCK_SIZE") = PoolConfig{}.block_size;
  nb::class_<PoolConfig>(m, "PoolConfig", R"(Sizes and behaviour of a pool. Immutable.

Parameters
----------
block_size : int
    Token slots a block, 1 to 2**31 - 1.
n_blocks : int
    Blocks managed at first, over all streams, 1 to 2**32. With `separate_kv` they are split in
    halves; an odd block goes to "k".
separate_kv : bool
    Whether keys and values draw on free lists of their own, or on one.
grow_on_exhaustion : bool
    Whether to add blocks rather than refuse a request.
max_blocks : int or None
    The most blocks, over all streams, that growth may reach. Retired blocks do not count.
    None: no cap.

Raises
------
ValueError
    For a value outside its range; the text shows it.
TypeError
    For a size that is no integer.)")
      .def(
          "__init__",
          [](PoolConfig* self, nb::handle block_size, nb::handle n_blocks, bool separate_kv,
             bool grow_on_exhaustion, nb::handle max_blocks) {
            new (self) PoolConfig(
                make_config(block_size, n_blocks, separate_kv, grow_on_exhaustion, max_blocks));
          },
          nb::arg("block_size").none() = PoolConfig{}.block_size,
          nb::arg("n_blocks").none() = PoolConfig{}.n_blocks, nb::arg("separate_kv") = true,
          nb::arg("grow_on_exhaustion") = false, nb::arg("max_blocks") = nb::none(),
          nb::sig("def __init__(self, block_size: int = 16, n_blocks: int = 1024, "
                  "separate_kv: bool = True, grow_on_exhaustion: bool = False, "
                  "max_blocks: int | None = None) -> None"))
      .def_ro("block_size", &PoolConfig::block_size)
      .def_ro("n_blocks", &PoolConfig::n_blocks)
      .def_ro("separate_kv", &PoolConfig::separate_kv)
      .def_ro("grow_on_exhaustion", &PoolConfig::grow_on_exhaustion)
      .def_ro("max_blocks", &PoolConfig::max_blocks)
      .def(nb::self == nb::self, nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__", [](const PoolConfig& self) { return nb::hash(fields(self)); })
      .def("__repr__",
           [](const PoolConfig& self) {
             return nb::str(
                        "PoolConfig(block_size={}, n_blocks={}, separate_kv={}, "
                        "grow_on_exhaustion={}, max_blocks={})")
                 .format(*fields(self));
           })
      .def("__reduce__", [](const PoolConfig& self) {
        return nb::make_tuple(nb::type<PoolConfig>(), fields(self));
      });
}

}  // namespace kvpool::python
