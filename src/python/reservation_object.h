// The Python type Reservation.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "kvpool/pool/reservation.h"
#include "shared_pool.h"

namespace kvpool::python {

struct ReservationObject {
  // What the core's numbers of an item look like in Python.
  struct Label {
    Stream stream;
    nanobind::object format;
  };

  ReservationObject(PoolRef of_pool, Reservation of_items, OwnerId for_owner,
                    std::vector<Label> item_labels);
  ReservationObject(ReservationObject&&) noexcept = default;
  ~ReservationObject();

  nanobind::list take(std::size_t index);
  nanobind::list commit();
  void cancel();

  PoolRef pool;
  Reservation reservation;
  OwnerId owner_id;
  nanobind::object owner;
  std::vector<Label> labels;  // an item each
};

}  // namespace kvpool::python
