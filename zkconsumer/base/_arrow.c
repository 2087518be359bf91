/* Creates Arrow arrays from buffers that Python owns, as the two capsules of Arrow's PyCapsule interface.
 *
 * pyarrow, polars, DuckDB and others get them from `__arrow_c_array__`; this module needs none of these packages.  The
 * layout of the two structs is Arrow's C data interface.  No byte is copied: an array has a reference to its buffers
 * until its consumer releases it, in any thread, with or without the global interpreter lock. */

#include "zkconsumer_limited.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ARROW_FLAG_NULLABLE 2

struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data; /* the tuple of the buffers' owners */
};

/* --- release --------------------------------------------------------------------------------------------------------- */

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t each = 0; each < schema->n_children; each++) {
        struct ArrowSchema *child = schema->children[each];
        if (child && child->release) child->release(child);
        free(child);
    }
    free(schema->children);
    free((char *)schema->format);
    free((char *)schema->name);
    schema->release = NULL;
}

static void release_array(struct ArrowArray *array) {
    for (int64_t each = 0; each < array->n_children; each++) {
        struct ArrowArray *child = array->children[each];
        if (child && child->release) child->release(child);
        free(child);
    }
    free(array->children);
    free(array->buffers);
    if (array->private_data && Py_IsInitialized()) {
        PyGILState_STATE held = PyGILState_Ensure();
        Py_DECREF((PyObject *)array->private_data);
        PyGILState_Release(held);
    }
    array->release = NULL;
}

static void free_schema(PyObject *capsule) {
    struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema && schema->release) schema->release(schema);
    free(schema);
}

static void free_array(PyObject *capsule) {
    struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (array && array->release) array->release(array);
    free(array);
}

/* --- build ----------------------------------------------------------------------------------------------------------- */

static char *copied(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *made = malloc(bytes);
    if (made) memcpy(made, text, bytes);
    return made;
}

/* The caller must zero both structs before, and release them afterwards, also after a failure. */
static bool build(PyObject *node, struct ArrowSchema *schema, struct ArrowArray *array) {
    const char *format, *name;
    int is_nullable;
    long long length, nulls;
    PyObject *buffers, *children;
    if (!PyTuple_Check(node)) {
        PyErr_SetString(PyExc_TypeError, "a node must be a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(node, "sspLLOO", &format, &name, &is_nullable, &length, &nulls, &buffers, &children)) return false;
    if (!PyTuple_Check(buffers) || !PyTuple_Check(children)) {
        PyErr_SetString(PyExc_TypeError, "buffers and children must be tuples");
        return false;
    }
    int64_t n_buffers = PyTuple_Size(buffers), n_children = PyTuple_Size(children);
    schema->release = release_schema;
    array->release = release_array;
    schema->flags = is_nullable ? ARROW_FLAG_NULLABLE : 0;
    array->length = length;
    array->null_count = nulls;
    schema->format = copied(format);
    schema->name = copied(name);
    schema->children = calloc((size_t)n_children + 1, sizeof *schema->children);
    array->children = calloc((size_t)n_children + 1, sizeof *array->children);
    array->buffers = calloc((size_t)n_buffers + 1, sizeof *array->buffers);
    if (!schema->format || !schema->name || !schema->children || !array->children || !array->buffers) goto no_memory;
    array->n_buffers = n_buffers;
    for (int64_t each = 0; each < n_buffers; each++) {
        PyObject *buffer = PyTuple_GetItem(buffers, (Py_ssize_t)each);
        if (buffer == Py_None) continue;
        array->buffers[each] = PyBytes_AsString(buffer); /* raises TypeError if it is not bytes */
        if (!array->buffers[each]) return false;
    }
    array->private_data = Py_NewRef(buffers);
    for (int64_t each = 0; each < n_children; each++) {
        schema->children[each] = calloc(1, sizeof **schema->children);
        array->children[each] = calloc(1, sizeof **array->children);
        schema->n_children = array->n_children = each + 1;
        if (!schema->children[each] || !array->children[each]) goto no_memory;
        if (!build(PyTuple_GetItem(children, (Py_ssize_t)each), schema->children[each], array->children[each])) return false;
    }
    return true;
no_memory:
    PyErr_NoMemory();
    return false;
}

/* capsules(node) -> (capsule of the schema, capsule of the array)
 *
 * A node is (format, name, whether it may be null, length, number of nulls, (buffer or None, ...), (node, ...)); buffers
 * are bytes, in Arrow's order. */
static PyObject *capsules(PyObject *Py_UNUSED(module), PyObject *node) {
    struct ArrowSchema *schema = calloc(1, sizeof *schema);
    struct ArrowArray *array = calloc(1, sizeof *array);
    PyObject *of_schema = schema ? PyCapsule_New(schema, "arrow_schema", free_schema) : PyErr_NoMemory();
    if (!of_schema) free(schema);
    PyObject *of_array = array ? PyCapsule_New(array, "arrow_array", free_array) : PyErr_NoMemory();
    if (!of_array) free(array);
    PyObject *found = NULL;
    if (of_schema && of_array && build(node, schema, array)) found = PyTuple_Pack(2, of_schema, of_array);
    Py_XDECREF(of_schema);
    Py_XDECREF(of_array);
    return found;
}

static PyMethodDef methods[] = {
    {"capsules", capsules, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    ZK_MODULE_GIL_SLOT
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_arrow",
    .m_doc = "Arrow's PyCapsule interface.  Internal: see zkconsumer.kafka.record_batch.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__arrow(void) { return PyModuleDef_Init(&definition); }
