// kvpool._core: the C++ core as Python sees it. No MLX, no NumPy.
#include <nanobind/nanobind.h>

#include "bindings.h"
#include "block_object.h"
#include "guarded.h"

NB_MODULE(_core, m) {
  m.doc() = "The C++ core of kvpool; its public names are in kvpool.memory.";
  m.attr("__version__") = KVPOOL_VERSION;
  kvpool::python::bind_errors(m);
  kvpool::python::bind_config(m);
  kvpool::python::bind_block(m);
  kvpool::python::bind_stats(m);
  kvpool::python::bind_reservation(m);
  kvpool::python::bind_pool(m);
}
