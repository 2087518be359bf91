/* Tables of rows in Python objects: what the modules have in common that make one object for each row.
 *
 * `zkconsumer/wire/_records.c` makes the tables: rows, and the bytes that they point into. */

#ifndef ZKCONSUMER_ROWS_H
#define ZKCONSUMER_ROWS_H

#include "zkconsumer_limited.h"

#include <stdbool.h>
#include <stdint.h>

#define FREE(type, self) ((freefunc)PyType_GetSlot(type, Py_tp_free))(self)
#define ALLOC(type) ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0)

/* For functions that are seldom called for a record.  The code for most records then has no jumps around theirs: this makes
 * a loop over records of 100 bytes 13 % faster. */
#if defined(__GNUC__) || defined(__clang__)
#define RARE __attribute__((cold, noinline))
#else
#define RARE
#endif

/* For the start of a module. */
static inline bool add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **type) {
    *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *type && PyModule_AddType(module, *type) == 0;
}

static inline bool intern(PyObject **name, const char *text) { return (*name = PyUnicode_InternFromString(text)) != NULL; }

/* A row of a table: `zk_row` of zkconsumer/wire/records_core.h, `ROW` of zkconsumer/wire/record_tables.py. */
typedef struct {
    int64_t offset;
    int64_t timestamp;
    int32_t key_start;
    int32_t key_length;
    int32_t value_start;
    int32_t value_length;
    int32_t headers_start;
    int32_t headers_end;
    int32_t header_count;
    int32_t timestamp_type;
} row_t;

/* The bytes that rows point into.
 *
 * The owner of a buffer is not shown to the garbage collector, here and in the objects with a table of rows: the
 * collector may clear a memoryview whose buffer is in use, and CPython crashes when that memoryview is freed.  Bytes
 * refer to nothing, so no cycle is missed. */
typedef struct {
    PyObject_HEAD
    Py_buffer view;
} held_bytes;

static void bytes_dealloc(held_bytes *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->view.obj) PyBuffer_Release(&self->view);
    FREE(type, self);
    Py_DECREF(type);
}

static PyType_Slot bytes_slots[] = {
    {Py_tp_dealloc, bytes_dealloc},
    {0, NULL},
};

#define HELD_BYTES_SPEC(type_name)                                                                                     \
    {                                                                                                                  \
        .name = type_name, .basicsize = sizeof(held_bytes),                                                            \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, .slots = bytes_slots,                         \
    }

/* Whether the table has these rows; if not, with an exception. */
static inline bool has_rows(const Py_buffer *table, int64_t first, int64_t end) {
    if (first >= 0 && end >= first && end <= table->len / (Py_ssize_t)sizeof(row_t)) return true;
    PyErr_SetString(PyExc_ValueError, "the table has fewer rows");
    return false;
}

RARE static bool refuse_row(void) {
    PyErr_SetString(PyExc_ValueError, "a row whose fields are outside of the data");
    return false;
}

/* Whether the fields of a row are inside of `total` bytes; if not, with an exception.  One branch: it is done for each record. */
static inline bool row_fits(const row_t *row, int64_t total) {
    bool fits = (row->key_start | row->value_start | row->headers_start | row->header_count) >= 0;
    fits &= (int64_t)row->key_start + row->key_length <= total;
    fits &= (int64_t)row->value_start + row->value_length <= total;
    fits &= row->headers_start <= row->headers_end;
    fits &= row->headers_end <= total;
    return fits || refuse_row();
}

/* A field of a row: bytes, or None for null. */
static inline PyObject *bytes_or_none(const held_bytes *held, int32_t start, int32_t length) {
    if (length < 0) return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)held->view.buf + start, length);
}

/* Reads a varint of a header whose bytes the decoder has checked.  Returns false if it does not fit. */
static bool header_varint(const uint8_t **at, const uint8_t *end, int64_t *value) {
    uint64_t raw = 0;
    for (int shift = 0; *at < end && shift <= 63; shift += 7) {
        uint8_t byte = *(*at)++;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *value = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return true;
        }
    }
    return false;
}

static PyObject *parsed_headers(const uint8_t *at, const uint8_t *end, int32_t count) {
    PyObject *found = PyTuple_New(count);
    for (int32_t index = 0; found && index < count; index++) {
        int64_t name_length, value_length;
        const uint8_t *name, *value;
        PyObject *header = NULL;
        bool fits = header_varint(&at, end, &name_length) && name_length >= 0 && name_length <= end - at;
        if (fits) {
            name = at;
            at += name_length;
            fits = header_varint(&at, end, &value_length) && value_length <= end - at;
        }
        if (!fits) {
            PyErr_SetString(PyExc_SystemError, "headers that the decoder should have rejected");
        } else {
            value = at;
            if (value_length > 0) at += value_length;
            PyObject *text = PyUnicode_DecodeUTF8((const char *)name, (Py_ssize_t)name_length, "replace");
            PyObject *bytes = value_length < 0 ? Py_NewRef(Py_None)
                                               : PyBytes_FromStringAndSize((const char *)value, (Py_ssize_t)value_length);
            if (text && bytes) header = PyTuple_Pack(2, text, bytes);
            Py_XDECREF(text);
            Py_XDECREF(bytes);
        }
        if (!header || PyTuple_SetItem(found, index, header) < 0) Py_CLEAR(found);
    }
    return found;
}

/* The fields of one record, created at the first access.
 *
 * A record that the program keeps must not keep the bytes of a whole fetch: `held` is NULL once its fields were copied
 * (`detach`).  All functions return NULL, or false, with an exception, without memory. */
typedef struct {
    held_bytes *held;
    PyObject *key;     /* bytes, an object, or None; NULL: not created yet */
    PyObject *value;
    PyObject *headers; /* the tuple; in a detached record perhaps bytes that were not parsed yet; NULL: not created yet */
    row_t row;
} record_fields;

/* Borrowed. */
static inline PyObject *field_at(const record_fields *fields, PyObject **at, int32_t start, int32_t length) {
    if (!*at) {
        if (!fields->held && length >= 0) {
            PyErr_SetString(PyExc_SystemError, "a record without its bytes");
            return NULL;
        }
        *at = bytes_or_none(fields->held, start, length);
    }
    return *at;
}

/* Borrowed. */
static inline PyObject *key_of(record_fields *fields) {
    return field_at(fields, &fields->key, fields->row.key_start, fields->row.key_length);
}

/* Borrowed. */
static inline PyObject *value_of(record_fields *fields) {
    return field_at(fields, &fields->value, fields->row.value_start, fields->row.value_length);
}

/* A new reference. */
static PyObject *headers_of(record_fields *fields) {
    if (!fields->headers || PyBytes_Check(fields->headers)) {
        const uint8_t *at = NULL, *end = NULL;
        if (fields->headers) {
            at = (const uint8_t *)PyBytes_AsString(fields->headers);
            end = at + PyBytes_Size(fields->headers);
        } else if (fields->held) {
            at = (const uint8_t *)fields->held->view.buf + fields->row.headers_start;
            end = (const uint8_t *)fields->held->view.buf + fields->row.headers_end;
        }
        PyObject *found = parsed_headers(at, end, fields->row.header_count);
        if (!found) return NULL;
        PyObject *before = fields->headers;
        fields->headers = found;
        Py_XDECREF(before);
    }
    return Py_NewRef(fields->headers);
}

/* Copies the fields, and releases the bytes.  If it fails, the record is unchanged. */
static bool detach(record_fields *fields) {
    if (!fields->held) return true;
    if (!key_of(fields) || !value_of(fields)) return false;
    if (!fields->headers && fields->row.header_count) {
        const char *at = (const char *)fields->held->view.buf + fields->row.headers_start;
        fields->headers = PyBytes_FromStringAndSize(at, fields->row.headers_end - fields->row.headers_start);
        if (!fields->headers) return false;
    }
    Py_CLEAR(fields->held);
    return true;
}

static inline int visit_fields(record_fields *fields, visitproc visit, void *arg) {
    Py_VISIT(fields->key);
    Py_VISIT(fields->value);
    Py_VISIT(fields->headers);
    return 0;
}

/* For another row of the same bytes. */
static inline void clear_objects(record_fields *fields) {
    if (fields->key) Py_CLEAR(fields->key);
    if (fields->value) Py_CLEAR(fields->value);
    if (fields->headers) Py_CLEAR(fields->headers);
}

#endif
