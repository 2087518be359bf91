/* The Python side of the record decoder (`records_core.h`): buffers in, tables and buffers out.
 *
 * Whatever the decoder does not accept is left to the Python modules of this folder, which are the reference and raise
 * all errors about bytes.  Used by `tables.py` alone.  See there for what the functions give.
 *
 * No static mutable state: types and checksum tables belong to the module object. */

#include "zkconsumer_limited.h"

#include <stddef.h>

#include "fetch_core.h"
#include "records_core.h"

#define WITHOUT_GIL_BYTES (16 * 1024)

typedef struct {
    PyTypeObject *cursor_type;
    zk_crc crc;
    zk_crc crc_tables_only;
} module_state;

static module_state *state_of(PyObject *module) { return PyModule_GetState(module); }

/* --- Cursor ------------------------------------------------------------------------------------------------------- */

/* Takes no part in garbage collection: it refers to buffers alone, and the collector may clear a memoryview whose buffer is
 * in use, which CPython does not survive. */
typedef struct {
    PyObject_HEAD
    zk_cursor c;
    Py_buffer set;
    Py_buffer body; /* what the current entry expanded to */
    Py_buffer left_out;
    const zk_crc *crc;
    zk_stop stop;
    bool is_busy; /* a thread decodes without the GIL */
} cursor;

static void release(cursor *self) {
    if (self->body.obj) PyBuffer_Release(&self->body);
    if (self->left_out.obj) PyBuffer_Release(&self->left_out);
    if (self->set.obj) PyBuffer_Release(&self->set);
}

static void cursor_dealloc(cursor *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    release(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Cursor(record_set, start_offset, end_offset, check_crcs, left_out, with_instructions) */
static PyObject *cursor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *record_set, *left_out;
    long long start, end;
    int check, with_instructions;
    if (kwargs && PyObject_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Cursor takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OLLpOp", &record_set, &start, &end, &check, &left_out, &with_instructions)) return NULL;
    module_state *state = PyType_GetModuleState(type);
    if (!state) return NULL;
    cursor *self = (cursor *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) return NULL;
    self->crc = with_instructions ? &state->crc : &state->crc_tables_only;
    if (PyObject_GetBuffer(record_set, &self->set, PyBUF_SIMPLE) < 0) goto failed;
    if (left_out != Py_None && PyObject_GetBuffer(left_out, &self->left_out, PyBUF_SIMPLE) < 0) goto failed;
    if (self->set.len > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "a record set of 2 GiB or more");
        goto failed;
    }
    self->c = (zk_cursor){
        .set = self->set.buf,
        .set_bytes = self->set.len,
        .start_offset = start,
        .end_offset = end,
        .check_crcs = check,
        .left_out = self->left_out.buf,
        .left_out_count = self->left_out.len / (Py_ssize_t)sizeof(int64_t),
        .crc = self->crc,
        .offset_before = -1,
    };
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static bool cursor_is_free(cursor *self) {
    if (self->is_busy) PyErr_SetString(PyExc_RuntimeError, "two threads use one cursor");
    return !self->is_busy;
}

/* read(rows, bytes_most) -> how many rows were filled in; then see `stop` */
static PyObject *cursor_read(cursor *self, PyObject *args) {
    Py_buffer rows;
    long long bytes_most;
    int64_t count = 0;
    if (!PyArg_ParseTuple(args, "w*L", &rows, &bytes_most)) return NULL;
    if (!cursor_is_free(self)) {
        PyBuffer_Release(&rows);
        return NULL;
    }
    if (self->c.inside == ZK_NO_ENTRY && self->body.obj) PyBuffer_Release(&self->body);
    int64_t most = rows.len / (Py_ssize_t)sizeof(zk_row);
    if (most < 1 || bytes_most < 1) {
        PyBuffer_Release(&rows);
        PyErr_SetString(PyExc_ValueError, "no room for a row");
        return NULL;
    }
    if (self->set.len < WITHOUT_GIL_BYTES) {
        self->stop = zk_read(&self->c, rows.buf, most, bytes_most, &count);
    } else {
        self->is_busy = true;
        Py_BEGIN_ALLOW_THREADS
        self->stop = zk_read(&self->c, rows.buf, most, bytes_most, &count);
        Py_END_ALLOW_THREADS
        self->is_busy = false;
    }
    PyBuffer_Release(&rows);
    return PyLong_FromLongLong(count);
}

/* enter(expanded) -> whether its records can be read here; else the reference must read the entry */
static PyObject *cursor_enter(cursor *self, PyObject *expanded) {
    if (!cursor_is_free(self)) return NULL;
    if (self->c.inside != ZK_PENDING) {
        PyErr_SetString(PyExc_RuntimeError, "no compressed entry is waiting");
        return NULL;
    }
    if (self->body.obj) PyBuffer_Release(&self->body);
    if (PyObject_GetBuffer(expanded, &self->body, PyBUF_SIMPLE) < 0) return NULL;
    return PyBool_FromLong(zk_enter(&self->c, self->body.buf, self->body.len));
}

/* skip(): go behind the entry at `entry`, which the reference has read */
static PyObject *cursor_skip(cursor *self, PyObject *Py_UNUSED(ignored)) {
    if (!cursor_is_free(self)) return NULL;
    zk_skip(&self->c);
    Py_RETURN_NONE;
}

static PyObject *cursor_stop(cursor *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(self->stop); }

/* (position, end, magic, offset in the header, last offset): of the entry that `stop` is about */
static PyObject *cursor_entry(cursor *self, void *Py_UNUSED(closure)) {
    const zk_cursor *c = &self->c;
    return Py_BuildValue(
        "LLiLL", (long long)c->position, (long long)c->end, (int)c->magic, (long long)c->offset, (long long)c->last_offset);
}

/* (codec, start, end): of the payload that must be decompressed */
static PyObject *cursor_payload(cursor *self, void *Py_UNUSED(closure)) {
    const zk_cursor *c = &self->c;
    return Py_BuildValue("iLL", (int)c->codec, (long long)c->payload_start, (long long)c->payload_end);
}

static PyObject *cursor_position(cursor *self, void *Py_UNUSED(closure)) { return PyLong_FromLongLong(self->c.position); }

static PyObject *cursor_offset_before(cursor *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->c.offset_before);
}

/* The first offset that was not given yet: where the reference goes on. */
static PyObject *cursor_next_offset(cursor *self, void *Py_UNUSED(closure)) {
    const zk_cursor *c = &self->c;
    int64_t next = c->inside == ZK_NO_ENTRY ? c->offset_before + 1 : c->record_before + 1;
    return PyLong_FromLongLong(next > c->start_offset ? next : c->start_offset);
}

static PyGetSetDef cursor_getset[] = {
    {"stop", (getter)cursor_stop, NULL, NULL, NULL},
    {"entry", (getter)cursor_entry, NULL, NULL, NULL},
    {"payload", (getter)cursor_payload, NULL, NULL, NULL},
    {"position", (getter)cursor_position, NULL, NULL, NULL},
    {"offset_before", (getter)cursor_offset_before, NULL, NULL, NULL},
    {"next_offset", (getter)cursor_next_offset, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef cursor_methods[] = {
    {"read", (PyCFunction)cursor_read, METH_VARARGS, NULL},
    {"enter", (PyCFunction)cursor_enter, METH_O, NULL},
    {"skip", (PyCFunction)cursor_skip, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot cursor_slots[] = {
    {Py_tp_new, cursor_new},
    {Py_tp_dealloc, cursor_dealloc},
    {Py_tp_methods, cursor_methods},
    {Py_tp_getset, cursor_getset},
    {0, NULL},
};

static PyType_Spec cursor_spec = {
    .name = "zkconsumer.wire._records.Cursor",
    .basicsize = sizeof(cursor),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = cursor_slots,
};

/* --- record sets --------------------------------------------------------------------------------------------------- */

/* scan(record_set, end_offset) -> (complete bytes, entries, first offset, next offset, whether the first offset is that
 * of the last message of a wrapper), or None: the reference must judge */
static PyObject *scan(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer set;
    long long end_offset;
    if (!PyArg_ParseTuple(args, "y*L", &set, &end_offset)) return NULL;
    zk_scan_result found = zk_scan(set.buf, set.len, end_offset);
    PyBuffer_Release(&set);
    if (found.is_odd) Py_RETURN_NONE;
    return Py_BuildValue(
        "LLLLO", (long long)found.complete_bytes, (long long)found.entries, (long long)found.first_offset,
        (long long)found.next_offset, found.is_first_last ? Py_True : Py_False);
}

static PyObject *checksum(PyObject *module, PyObject *args, bool is_crc32c) {
    Py_buffer data;
    int with_instructions;
    if (!PyArg_ParseTuple(args, "y*p", &data, &with_instructions)) return NULL;
    module_state *state = state_of(module);
    const zk_crc *crc = with_instructions ? &state->crc : &state->crc_tables_only;
    uint32_t found = (is_crc32c ? crc->crc32c : crc->crc32)(crc, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(found);
}

/* crc32(data, with_instructions), crc32c(data, with_instructions) */
static PyObject *crc32(PyObject *module, PyObject *args) { return checksum(module, args, false); }
static PyObject *crc32c(PyObject *module, PyObject *args) { return checksum(module, args, true); }

/* --- tables as columns --------------------------------------------------------------------------------------------- */

typedef struct {
    const zk_row *rows;
    int64_t count;
    Py_buffer table;
    Py_buffer data;
} part;

/* Arguments (data, table, low, high, ...): the rows from `low` up to, not including, `high`. */
static bool take_part(PyObject *data, PyObject *table, long long low, long long high, part *found) {
    if (PyObject_GetBuffer(table, &found->table, PyBUF_SIMPLE) < 0) return false;
    if (PyObject_GetBuffer(data, &found->data, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&found->table);
        return false;
    }
    if (low < 0 || high < low || high > found->table.len / (Py_ssize_t)sizeof(zk_row)) {
        PyBuffer_Release(&found->table);
        PyBuffer_Release(&found->data);
        PyErr_SetString(PyExc_ValueError, "rows outside of the table");
        return false;
    }
    found->rows = (const zk_row *)found->table.buf + low;
    found->count = high - low;
    return true;
}

static void release_part(part *found) {
    PyBuffer_Release(&found->table);
    PyBuffer_Release(&found->data);
}

typedef struct {
    int32_t start;
    int32_t length;
} span;

static inline span key_of(const zk_row *row) { return (span){row->key_start, row->key_length}; }
static inline span value_of(const zk_row *row) { return (span){row->value_start, row->value_length}; }

/* (where each field ends behind a 0 as int32, the fields, a bit for each that is not null or None, how many are null) */
static PyObject *gathered(const Py_buffer *data, const zk_row *rows, int64_t count, span (*of)(const zk_row *)) {
    int64_t sum = 0, nulls = 0;
    for (int64_t row = 0; row < count; row++) {
        span each = of(rows + row);
        if (each.length < 0) {
            nulls++;
            continue;
        }
        if (each.start < 0 || each.length > data->len - each.start || (sum += each.length) > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a field outside of the data, or 2 GiB of fields and more");
            return NULL;
        }
    }
    PyObject *ends = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sum);
    PyObject *valid = nulls ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((count + 7) / 8)) : Py_NewRef(Py_None);
    PyObject *found = NULL;
    if (ends && bytes && valid) {
        const char *from = data->buf;
        char *to = PyBytes_AsString(bytes), *end = PyBytes_AsString(ends);
        char *bits = nulls ? PyBytes_AsString(valid) : NULL;
        if (bits) memset(bits, 0, (size_t)((count + 7) / 8));
        int32_t filled = 0;
        memcpy(end, &filled, sizeof filled);
        for (int64_t row = 0; row < count; row++) {
            span each = of(rows + row);
            if (each.length >= 0) {
                memcpy(to + filled, from + each.start, (size_t)each.length);
                filled += each.length;
                if (bits) bits[row / 8] |= (char)(1 << row % 8);
            }
            memcpy(end + (row + 1) * (int64_t)sizeof filled, &filled, sizeof filled);
        }
        found = Py_BuildValue("OOOL", ends, bytes, valid, (long long)nulls);
    }
    Py_XDECREF(ends);
    Py_XDECREF(bytes);
    Py_XDECREF(valid);
    return found;
}

/* fields(data, table, low, high, is_key) -> as `gathered` */
static PyObject *fields(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *data, *table, *found;
    long long low, high;
    int is_key;
    part rows;
    if (!PyArg_ParseTuple(args, "OOLLp", &data, &table, &low, &high, &is_key)) return NULL;
    if (!take_part(data, table, low, high, &rows)) return NULL;
    found = gathered(&rows.data, rows.rows, rows.count, is_key ? key_of : value_of);
    release_part(&rows);
    return found;
}

#define MS_MAX (INT64_MAX / 1000)

static int64_t in_micros(int64_t ms) { return (ms > MS_MAX ? MS_MAX : ms < -MS_MAX ? -MS_MAX : ms) * 1000; }

/* numbers(table, low, high, in_micros) -> (offsets, timestamps in ms or us, both int64; types of timestamps, int32).
 * Microseconds beyond 64 bits are put at the end of them. */
static PyObject *numbers(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *table, *made[3], *found = NULL;
    long long low, high;
    int is_micros;
    part rows;
    if (!PyArg_ParseTuple(args, "OLLp", &table, &low, &high, &is_micros)) return NULL;
    if (!take_part(table, table, low, high, &rows)) return NULL;
    made[0] = PyBytes_FromStringAndSize(NULL, rows.count * (Py_ssize_t)sizeof(int64_t));
    made[1] = PyBytes_FromStringAndSize(NULL, rows.count * (Py_ssize_t)sizeof(int64_t));
    made[2] = PyBytes_FromStringAndSize(NULL, rows.count * (Py_ssize_t)sizeof(int32_t));
    if (made[0] && made[1] && made[2]) {
        char *offsets = PyBytes_AsString(made[0]), *times = PyBytes_AsString(made[1]), *types = PyBytes_AsString(made[2]);
        for (int64_t row = 0; row < rows.count; row++) {
            const zk_row *each = rows.rows + row;
            int64_t time = is_micros ? in_micros(each->timestamp) : each->timestamp;
            memcpy(offsets + row * 8, &each->offset, 8);
            memcpy(times + row * 8, &time, 8);
            memcpy(types + row * 4, &each->timestamp_type, 4);
        }
        found = Py_BuildValue("OOO", made[0], made[1], made[2]);
    }
    for (int each = 0; each < 3; each++) Py_XDECREF(made[each]);
    release_part(&rows);
    return found;
}

/* headers(data, table, low, high) -> (where the headers of each row end behind a 0, int32; a bit for each row that has
 * headers; how many rows have none; how many headers; names; values, both as `gathered`) */
static PyObject *headers(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *data, *table, *ends = NULL, *having = NULL, *names = NULL, *values = NULL, *found = NULL;
    long long low, high;
    part rows;
    if (!PyArg_ParseTuple(args, "OOLL", &data, &table, &low, &high)) return NULL;
    if (!take_part(data, table, low, high, &rows)) return NULL;
    int64_t all = 0, without = 0;
    for (int64_t row = 0; row < rows.count; row++) {
        const zk_row *each = rows.rows + row;
        if (each->headers_start < 0 || each->headers_end < each->headers_start || each->headers_end > rows.data.len) goto odd;
        if (each->header_count < 0 || each->header_count > each->headers_end - each->headers_start) goto odd;
        all += each->header_count;
    }
    if (all > INT32_MAX) goto odd;
    ends = PyBytes_FromStringAndSize(NULL, (rows.count + 1) * (Py_ssize_t)sizeof(int32_t));
    having = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)((rows.count + 7) / 8));
    zk_row *each_header = PyMem_Malloc((size_t)(all ? all : 1) * sizeof(zk_row));
    if (!ends || !having || !each_header) {
        if (ends && having) PyErr_NoMemory();
        PyMem_Free(each_header);
        goto done;
    }
    char *end = PyBytes_AsString(ends), *bits = PyBytes_AsString(having);
    memset(bits, 0, (size_t)((rows.count + 7) / 8));
    int32_t filled = 0;
    memcpy(end, &filled, sizeof filled);
    const uint8_t *raw = rows.data.buf;
    for (int64_t row = 0; row < rows.count; row++) {
        const zk_row *each = rows.rows + row;
        const uint8_t *at = raw + each->headers_start, *behind = raw + each->headers_end;
        for (int32_t header = 0; header < each->header_count; header++, filled++) {
            int64_t name, value;
            if (!(at = zk_varint(at, behind, &name)) || name < 0) break;
            each_header[filled].key_start = (int32_t)(at - raw);
            each_header[filled].key_length = (int32_t)name;
            if (!(at = zk_past(at, behind, name)) || !(at = zk_varint(at, behind, &value))) break;
            each_header[filled].value_start = (int32_t)(at - raw);
            each_header[filled].value_length = value < 0 ? -1 : (int32_t)value;
            if (!(at = zk_past(at, behind, value))) break;
        }
        if (each->header_count && at != behind) {
            PyMem_Free(each_header);
            goto odd;
        }
        if (each->header_count)
            bits[row / 8] |= (char)(1 << row % 8);
        else
            without++;
        memcpy(end + (row + 1) * (int64_t)sizeof filled, &filled, sizeof filled);
    }
    names = gathered(&rows.data, each_header, all, key_of);
    values = names ? gathered(&rows.data, each_header, all, value_of) : NULL;
    if (values) found = Py_BuildValue("OOLLOO", ends, having, (long long)without, (long long)all, names, values);
    PyMem_Free(each_header);
    goto done;
odd:
    PyErr_SetString(PyExc_ValueError, "the headers of a row do not fill their place");
done:
    Py_XDECREF(ends);
    Py_XDECREF(having);
    Py_XDECREF(names);
    Py_XDECREF(values);
    release_part(&rows);
    return found;
}

/* cut(table, low, high, bytes_most) -> the end of the rows from `low` on, at least one, whose values begin within so many
 * bytes */
static PyObject *cut(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *table;
    long long low, high, bytes_most;
    part rows;
    if (!PyArg_ParseTuple(args, "OLLL", &table, &low, &high, &bytes_most)) return NULL;
    if (!take_part(table, table, low, high, &rows)) return NULL;
    int64_t first = 0, behind = rows.count; /* values lie in the order of the rows */
    if (rows.count) {
        int64_t until = rows.rows[0].value_start + bytes_most;
        first = 1;
        while (first < behind) {
            int64_t middle = first + (behind - first) / 2;
            if (rows.rows[middle].value_start < until)
                first = middle + 1;
            else
                behind = middle;
        }
    }
    release_part(&rows);
    return PyLong_FromLongLong(low + first);
}

/* extent(table, count) -> (start, end): of the data that the first `count` rows refer to, which are in its order */
static PyObject *extent(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *table;
    long long count;
    part rows;
    if (!PyArg_ParseTuple(args, "OL", &table, &count)) return NULL;
    if (!take_part(table, table, 0, count, &rows)) return NULL;
    int64_t start = 0, end = 0;
    if (count) {
        const zk_row *last = rows.rows + count - 1;
        int64_t ends[] = {
            last->key_start + (int64_t)(last->key_length > 0 ? last->key_length : 0),
            last->value_start + (int64_t)(last->value_length > 0 ? last->value_length : 0),
            last->header_count ? last->headers_end : 0,
        };
        start = rows.rows->key_start;
        for (int each = 0; each < 3; each++) end = ends[each] > end ? ends[each] : end;
    }
    release_part(&rows);
    return Py_BuildValue("LL", (long long)start, (long long)end);
}

/* join(table, count, into, at, shift): copies the first `count` rows of `table` into the table `into`, from its row `at`
 * on.  Their data lies `shift` bytes further on than that of `table`. */
static PyObject *join(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer table, into;
    long long count, at, shift;
    if (!PyArg_ParseTuple(args, "y*Lw*LL", &table, &count, &into, &at, &shift)) return NULL;
    Py_ssize_t have = table.len / (Py_ssize_t)sizeof(zk_row), room = into.len / (Py_ssize_t)sizeof(zk_row);
    bool fits = count >= 0 && count <= have && at >= 0 && at <= room && count <= room - at;
    fits = fits && shift >= INT32_MIN && shift <= INT32_MAX;
    const zk_row *from = table.buf;
    zk_row *to = (zk_row *)into.buf + (fits ? at : 0);
    for (int64_t row = 0; fits && row < count; row++, from++, to++) {
        int64_t key = from->key_start + shift, value = from->value_start + shift;
        int64_t start = from->header_count ? from->headers_start + shift : 0;
        int64_t end = from->header_count ? from->headers_end + shift : 0;
        fits = key == (int32_t)key && value == (int32_t)value && start == (int32_t)start && end == (int32_t)end;
        *to = *from;
        to->key_start = (int32_t)key;
        to->value_start = (int32_t)value;
        to->headers_start = (int32_t)start;
        to->headers_end = (int32_t)end;
    }
    PyBuffer_Release(&table);
    PyBuffer_Release(&into);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "rows outside of a table, or data of 2 GiB and more");
        return NULL;
    }
    Py_RETURN_NONE;
}

/* --- the answer to a Fetch ------------------------------------------------------------------------------------------ */

#define FETCHED_ROWS_MAX 200000 /* so many partitions are left to the reference, which bounds its memory */

/* A new reference to the bytes [start:end] of the memoryview. */
static PyObject *part_of(PyObject *view, int64_t start, int64_t end) {
    PyObject *low = PyLong_FromLongLong(start), *high = PyLong_FromLongLong(end), *found = NULL;
    PyObject *slice = low && high ? PySlice_New(low, high, NULL) : NULL;
    if (slice) found = PyObject_GetItem(view, slice);
    Py_XDECREF(low);
    Py_XDECREF(high);
    Py_XDECREF(slice);
    return found;
}

/* Puts a new reference into the tuple; false: there is none. */
static bool put(PyObject *tuple, Py_ssize_t index, PyObject *item) { return item && PyTuple_SetItem(tuple, index, item) == 0; }

static PyObject *fetched_row(PyObject *view, const uint8_t *data, const zk_fetched *row, PyObject *topic) {
    zk_scan_result found = {0};
    PyObject *records;
    if (row->records_start < 0) {
        records = Py_NewRef(Py_None);
    } else if (row->records_start == row->records_end) {
        records = PyBytes_FromStringAndSize(NULL, 0);
    } else {
        found = zk_scan(data + row->records_start, row->records_end - row->records_start, ZK_NO_END);
        records = part_of(view, row->records_start, row->records_end);
    }
    PyObject *made = PyTuple_New(8);
    bool is_made = made != NULL;
    if (!is_made) Py_XDECREF(records);
    is_made = is_made && put(made, 4, records) && put(made, 0, Py_NewRef(topic)) &&
              put(made, 1, PyLong_FromLong(row->partition)) && put(made, 2, PyLong_FromLong(row->error_code)) &&
              put(made, 3, PyLong_FromLongLong(row->high_watermark)) &&
              put(made, 5, PyLong_FromLongLong(found.complete_bytes)) &&
              put(made, 6, PyLong_FromLongLong(found.is_odd ? -1 : found.entries)) &&
              put(made, 7, PyLong_FromLongLong(found.entries ? found.next_offset : -1));
    if (!is_made) Py_CLEAR(made);
    return made;
}

static PyObject *fetched_rows(PyObject *view, zk_fetch_answer *answer) {
    PyObject *rows = PyList_New(0), *topic = NULL;
    int64_t topic_start = -1;
    zk_fetched row;
    zk_fetched_step step = ZK_FETCHED_ODD;
    while (rows && (step = zk_fetch_next(answer, &row)) == ZK_FETCHED_ROW) {
        if (row.topic_start != topic_start) {
            topic_start = row.topic_start;
            Py_XDECREF(topic);
            topic = PyUnicode_DecodeUTF8(
                (const char *)answer->data + topic_start, (Py_ssize_t)(row.topic_end - topic_start), NULL);
            if (!topic) {
                if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) PyErr_Clear();
                step = ZK_FETCHED_ODD;
                break;
            }
        }
        PyObject *made = PyList_Size(rows) < FETCHED_ROWS_MAX ? fetched_row(view, answer->data, &row, topic) : NULL;
        int is_put = made ? PyList_Append(rows, made) : -1;
        Py_XDECREF(made);
        if (is_put < 0) {
            step = ZK_FETCHED_ODD;
            break;
        }
    }
    Py_XDECREF(topic);
    if (step != ZK_FETCHED_END) Py_CLEAR(rows);
    return rows;
}

/* fetched(answer, start, version) -> (throttle time in ms, error code, session id, rows), or None: the reference must
 * read it.  A row: topic, partition, error code, high watermark, record set or None, and of its record set the bytes of
 * complete entries, their number (-1: the reference must judge it), the offset behind the last of them or -1.
 * `answer`: a read-only memoryview of bytes. */
static PyObject *fetched(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *view, *rows = NULL, *found = NULL;
    long long start;
    int version;
    Py_buffer data;
    zk_fetch_answer answer;
    if (!PyArg_ParseTuple(args, "OLi", &view, &start, &version)) return NULL;
    if (PyObject_GetBuffer(view, &data, PyBUF_SIMPLE) < 0) return NULL;
    if (start < 0 || start > data.len) {
        PyErr_SetString(PyExc_ValueError, "the answer begins outside of its bytes");
    } else {
        bool is_open = zk_fetch_open(&answer, data.buf, start, data.len, version);
        if (is_open) rows = fetched_rows(view, &answer);
        if (rows)
            found = Py_BuildValue("iiiO", answer.throttle_ms, answer.error_code, answer.session_id, rows);
        else if (!PyErr_Occurred())
            found = Py_NewRef(Py_None);
        Py_XDECREF(rows);
    }
    PyBuffer_Release(&data);
    return found;
}

/* --- the module ----------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"crc32", crc32, METH_VARARGS, NULL},
    {"crc32c", crc32c, METH_VARARGS, NULL},
    {"cut", cut, METH_VARARGS, NULL},
    {"extent", extent, METH_VARARGS, NULL},
    {"fetched", fetched, METH_VARARGS, NULL},
    {"fields", fields, METH_VARARGS, NULL},
    {"headers", headers, METH_VARARGS, NULL},
    {"join", join, METH_VARARGS, NULL},
    {"numbers", numbers, METH_VARARGS, NULL},
    {"scan", scan, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module) {
    module_state *state = state_of(module);
    zk_crc_init(&state->crc, true);
    zk_crc_init(&state->crc_tables_only, false);
    state->cursor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &cursor_spec, NULL);
    if (!state->cursor_type || PyModule_AddType(module, state->cursor_type) < 0) return -1;
    if (PyModule_AddIntConstant(module, "ROW_BYTES", sizeof(zk_row)) < 0) return -1;
    if (PyModule_AddIntConstant(module, "END", ZK_END) < 0 || PyModule_AddIntConstant(module, "FULL", ZK_FULL) < 0 ||
        PyModule_AddIntConstant(module, "PACKED", ZK_PACKED) < 0 || PyModule_AddIntConstant(module, "LEFT", ZK_LEFT) < 0 ||
        PyModule_AddIntConstant(module, "ODD", ZK_ODD) < 0)
        return -1;
    PyObject *by = Py_BuildValue("ss", state->crc.crc32_by, state->crc.crc32c_by);
    int done = by ? PyModule_AddObjectRef(module, "CHECKSUMS_BY", by) : -1;
    Py_XDECREF(by);
    return done;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    Py_VISIT(state_of(module)->cursor_type);
    return 0;
}

static int module_clear(PyObject *module) {
    Py_CLEAR(state_of(module)->cursor_type);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    ZK_MODULE_GIL_SLOT
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_records",
    .m_doc = "The record decoder, compiled.  Internal: see zkconsumer.wire.tables.",
    .m_size = sizeof(module_state),
    .m_methods = methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__records(void) { return PyModuleDef_Init(&definition); }
