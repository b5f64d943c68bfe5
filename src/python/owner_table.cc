#include "owner_table.h"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace kvpool::python {
namespace {

// Whether two owners are equal, as far as that can be told without running Python code.
bool equal_without_code(PyObject* a, PyObject* b) {
  const bool plain = (PyLong_CheckExact(a) && PyLong_CheckExact(b)) ||
                     (PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b));
  return plain && PyObject_RichCompareBool(a, b, Py_EQ) == 1;
}

}  // namespace

OwnerId OwnerTable::find(PyObject* owner, Compared& compared) {
  const Py_hash_t hash = PyObject_Hash(owner);
  if (hash == -1) throw nb::python_error();
  return find_hashed(owner, hash, compared);
}

OwnerId OwnerTable::find_or_add(PyObject* owner, Compared& compared) {
  const Py_hash_t hash = PyObject_Hash(owner);
  if (hash == -1) throw nb::python_error();
  if (const OwnerId found = find_hashed(owner, hash, compared); found != kNobody) return found;
  Map::iterator added;
  if (spare_.empty()) {
    added = map_.emplace(hash, owner);
  } else {
    spare_.key() = hash;
    spare_.mapped() = owner;
    added = map_.insert(std::move(spare_));
  }
  Py_INCREF(owner);
  return id_of(*added);
}

// Two passes. The first runs no Python code and finds nearly every owner. The second may run some,
// so it compares against a copy of the candidates, and afterwards looks whether the one it found is
// still there, and whether others came meanwhile that must be compared too.
OwnerId OwnerTable::find_hashed(PyObject* owner, Py_hash_t hash, Compared& compared) {
  const auto [first, last] = map_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    if (entry->second == owner || equal_without_code(entry->second, owner)) return id_of(*entry);
  }
  for (std::size_t n_compared = 0;; ++n_compared) {
    if (n_compared == compared.size()) add_candidates(hash, compared);
    if (n_compared == compared.size()) return kNobody;
    const Candidate candidate = compared[n_compared];
    const int equal = PyObject_RichCompareBool(candidate.owner.ptr(), owner, Py_EQ);
    if (equal == -1) throw nb::python_error();
    if (equal == 1 && contains(hash, candidate)) return candidate.id;
  }
}

void OwnerTable::add_candidates(Py_hash_t hash, Compared& compared) {
  const std::size_t n_known = compared.size();
  const auto [first, last] = map_.equal_range(hash);
  for (auto entry = first; entry != last; ++entry) {
    const auto same = [&entry](const Candidate& candidate) {
      return candidate.id == id_of(*entry) && candidate.owner.is(entry->second);
    };
    if (n_known == 0 || std::none_of(compared.begin(), compared.end(), same)) {
      compared.push_back({id_of(*entry), nb::borrow(entry->second)});
    }
  }
}

bool OwnerTable::contains(Py_hash_t hash, const Candidate& candidate) {
  const auto [first, last] = map_.equal_range(hash);
  return std::any_of(first, last, [&candidate](Node& entry) {
    return id_of(entry) == candidate.id && candidate.owner.is(entry.second);
  });
}

PyObject* OwnerTable::remove(OwnerId id) {
  const Node* wanted = &node(id);
  const auto [first, last] = map_.equal_range(wanted->first);
  auto entry = first;
  while (entry != last && &*entry != wanted) ++entry;
  PyObject* owner = entry->second;
  spare_ = map_.extract(entry);
  return owner;
}

int OwnerTable::traverse(visitproc visit, void* arg) const {
  for (const Node& entry : map_) Py_VISIT(entry.second);
  return 0;
}

void OwnerTable::forget() {
  std::vector<PyObject*> owners;
  owners.reserve(map_.size());
  for (Node& entry : map_) {
    Py_INCREF(Py_None);
    owners.push_back(std::exchange(entry.second, Py_None));
  }
  for (PyObject* owner : owners) Py_DECREF(owner);
}

}  // namespace kvpool::python
