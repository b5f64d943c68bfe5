// What module.cc binds, in this order.
#pragma once

#include <nanobind/nanobind.h>

namespace kvpool::python {

void bind_config(nanobind::module_& m);
void bind_stats(nanobind::module_& m);
void bind_reservation(nanobind::module_& m);
void bind_pool(nanobind::module_& m);

}  // namespace kvpool::python
