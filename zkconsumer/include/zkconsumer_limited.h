/* The first include of every compiled module of the package.
 *
 * It selects the limited API of 3.11, so that one binary works with every later release.  A free-threaded build has no
 * limited API: there setup.py defines ZKCONSUMER_FULL_API, and the modules request the global interpreter lock
 * (Py_mod_gil), because the package depends on it: see zkconsumer/platforms.py. */

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
