#include <exception>
#include <new>
#include <stdexcept>

#include "guarded.h"
#include "kvpool/pool/errors.h"

namespace nb = nanobind;

namespace kvpool::python {
namespace {

PyObject* g_exhausted_error = nullptr;
PyObject* g_owner_active_error = nullptr;

}  // namespace

void set_python_error() noexcept {
  try {
    throw;
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const nb::builtin_exception& error) {
    PyErr_SetString(
        error.type() == nb::exception_type::type_error ? PyExc_TypeError : PyExc_ValueError,
        error.what());
  } catch (const BlockPoolExhaustedError& error) {
    PyErr_SetString(g_exhausted_error, error.what());
  } catch (const OwnerAlreadyActiveError& error) {
    PyErr_SetString(g_owner_active_error, error.what());
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
}

void bind_errors(nb::module_& m) {
  g_exhausted_error =
      nb::exception<BlockPoolExhaustedError>(m, "BlockPoolExhaustedError", PyExc_RuntimeError)
          .ptr();
  g_owner_active_error =
      nb::exception<OwnerAlreadyActiveError>(m, "OwnerAlreadyActiveError", PyExc_ValueError).ptr();
  nb::handle(g_exhausted_error).attr("__doc__") =
      "Too few free blocks, and the pool may not grow far enough; nothing was handed out.";
  nb::handle(g_owner_active_error).attr("__doc__") =
      "The owner is registered already, or still holds blocks.";
}

}  // namespace kvpool::python
