/* What every compiled module of the package begins with.
 *
 * The limited API of 3.11: one file serves every later release.  A free-threaded build has no limited API: setup.py
 * defines ZKCONSUMER_FULL_API there, and the modules ask for the global interpreter lock (Py_mod_gil), because the
 * package depends on it: see zkconsumer/platforms.py. */

#ifndef ZKCONSUMER_LIMITED_H
#define ZKCONSUMER_LIMITED_H

#ifndef ZKCONSUMER_FULL_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(ZKCONSUMER_FULL_API) && defined(Py_mod_gil)
#define ZK_MODULE_GIL_SLOT {Py_mod_gil, Py_MOD_GIL_USED},
#else
#define ZK_MODULE_GIL_SLOT
#endif

#endif
