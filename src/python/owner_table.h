// OwnerTable: Python owner objects as the numbers that the core knows owners by.
//
// Any hashable object can own blocks. Its __hash__ and __eq__ may run Python code, which may switch
// threads or call the pool: it runs only inside find() and find_or_add(), before they return, and
// never under the pool's mutex. Between their return and the call into the core no Python code
// runs, so what they found still holds: references that comparing needed are kept by the caller
// (`Compared`) until that call is done. Removal goes by the number and runs no Python code.
//
// The caller holds the GIL. Whoever removes an owner gets its reference, to drop when all is done.
#pragma once

#include <nanobind/nanobind.h>

#include <unordered_map>
#include <vector>

#include "kvpool/pool/block.h"

namespace kvpool::python {

class OwnerTable {
 public:
  OwnerTable() = default;
  OwnerTable(const OwnerTable&) = delete;
  OwnerTable& operator=(const OwnerTable&) = delete;
  ~OwnerTable() { forget(); }

  // A number that no owner has.
  static constexpr OwnerId kNobody = 0;

  struct Candidate {
    OwnerId id;
    nanobind::object owner;
  };
  using Compared = std::vector<Candidate>;

  // The owner's number, or kNobody. nanobind::python_error where __hash__ or __eq__ raises.
  OwnerId find(PyObject* owner, Compared& compared);
  OwnerId find_or_add(PyObject* owner, Compared& compared);

  // Takes the owner out and returns its reference (the caller's now).
  PyObject* remove(OwnerId id);

  // A borrowed reference.
  static PyObject* object(OwnerId id) { return node(id).second; }

  // For Python's cycle collector.
  int traverse(visitproc visit, void* arg) const;
  // Lets go of all owner objects; their numbers stay taken.
  void forget();

 private:
  using Map = std::unordered_multimap<Py_hash_t, PyObject*>;
  using Node = Map::value_type;

  // An owner's number is where its node lies: nodes of the map do not move.
  static Node& node(OwnerId id) { return *reinterpret_cast<Node*>(id); }
  static OwnerId id_of(Node& node) { return reinterpret_cast<OwnerId>(&node); }

  OwnerId find_hashed(PyObject* owner, Py_hash_t hash, Compared& compared);
  void add_candidates(Py_hash_t hash, Compared& compared);
  bool contains(Py_hash_t hash, const Candidate& candidate);

  Map map_;
  Map::node_type spare_;  // of the owner removed last, so that churn needs no memory
};

}  // namespace kvpool::python
