/* The Python interface of the record decoder (`records_core.h`): converts buffers to tables and buffers.
 *
 * The Python modules of this folder are the reference: they read all bytes that the decoder does not accept, and raise
 * all errors about bytes.  See `record_tables.py` for the results of the functions.
 *
 * No static mutable state: types and checksum tables belong to the module object. */

#include "zkconsumer_limited.h"

#include <stddef.h>

#include "fetch_core.h"
#include "records_core.h"

#define WITHOUT_GIL_BYTES (16 * 1024)

enum { CODEC_GZIP = 1, CODEC_SNAPPY = 2, CODEC_LZ4 = 3, CODEC_ZSTD = 4 };

#define ZSTD_PLAIN_BYTES_MAX 4096
#define GZIP_PLAIN_BYTES_MIN 2048
#define GZIP_RATIO_MAX 1032
#define GZIP_FLAGS_RESERVED 0xE0

typedef struct {
    PyTypeObject *cursor_type;
    zk_crc_tables crc_tables;
    zk_crc crcs[ZK_CRC_USES];
} module_state;

static module_state *state_of(PyObject *module) { return PyModule_GetState(module); }

/* --- Cursor ------------------------------------------------------------------------------------------------------- */

/* It takes no part in garbage collection: the collector may clear a memoryview whose buffer is in use, and then CPython
 * crashes. */
typedef struct {
    PyObject_HEAD
    zk_cursor c;
    Py_buffer set;
    Py_buffer body; /* the decompressed payload of the current entry; without an `obj` it is a part of `joined` */
    int64_t body_start; /* where it begins in `body.obj` or `joined` */
    Py_buffer excluded;
    PyObject *view;    /* a memoryview of the record set */
    PyObject *expand;  /* of `expand(codec, payload, magic, limit)` */
    PyObject *blocks;  /* (a decoder for each codec from 1 on, or None; what they raise): `into(block, out) -> bytes` */
    PyObject *limit;
    int64_t limit_bytes;
    PyObject *refused; /* the exceptions of `expand` for corrupt bytes */
    PyObject *joined;  /* a bytearray of `joined_bytes_max` bytes: parts of the next table are written into it; or NULL */
    int64_t joined_bytes_max;
    int64_t expanded_bytes; /* the size of the last body that was decompressed into `joined` */
    zk_stop stop;
    bool is_busy; /* a thread decodes without the GIL, or decompresses */
} cursor;

static void cursor_dealloc(cursor *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    if (self->body.obj) PyBuffer_Release(&self->body);
    if (self->excluded.obj) PyBuffer_Release(&self->excluded);
    if (self->set.obj) PyBuffer_Release(&self->set);
    Py_XDECREF(self->view);
    Py_XDECREF(self->expand);
    Py_XDECREF(self->blocks);
    Py_XDECREF(self->limit);
    Py_XDECREF(self->refused);
    Py_XDECREF(self->joined);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

#define JOINED_BYTES_MAX (1 << 28)

/* Cursor(record_set, start_offset, end_offset, check_crcs, excluded, with_instructions, expand, blocks, refused, limit,
 * joined_bytes_max).  `expand(codec, payload, magic, limit)` returns the decompressed payload, or raises one of `refused`.
 * `joined_bytes_max`: the maximum size in bytes of a table that is made of several entries. */
static PyObject *cursor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *record_set, *excluded, *expand, *blocks, *refused, *limit;
    long long start, end, joined_bytes_max;
    int check, with_instructions;
    if (kwargs && PyObject_Size(kwargs)) {
        PyErr_SetString(PyExc_TypeError, "Cursor takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(
            args, "OLLpOpOO!OOL", &record_set, &start, &end, &check, &excluded, &with_instructions, &expand, &PyTuple_Type,
            &blocks, &refused, &limit, &joined_bytes_max))
        return NULL;
    if (PyTuple_Size(blocks) != CODEC_ZSTD + 1) {
        PyErr_SetString(PyExc_ValueError, "blocks must be four decoders and their exceptions");
        return NULL;
    }
    long long limit_bytes = PyLong_AsLongLong(limit);
    if (limit_bytes == -1 && PyErr_Occurred()) return NULL;
    if (joined_bytes_max < 0 || joined_bytes_max > JOINED_BYTES_MAX) {
        PyErr_SetString(PyExc_ValueError, "joined_bytes_max must be at most 256 MiB");
        return NULL;
    }
    module_state *state = PyType_GetModuleState(type);
    if (!state) return NULL;
    cursor *self = (cursor *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self) return NULL;
    if (PyObject_GetBuffer(record_set, &self->set, PyBUF_SIMPLE) < 0) goto failed;
    if (excluded != Py_None && PyObject_GetBuffer(excluded, &self->excluded, PyBUF_SIMPLE) < 0) goto failed;
    if (!(self->view = PyMemoryView_FromObject(record_set))) goto failed;
    if (self->set.len > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "the record set must be smaller than 2 GiB");
        goto failed;
    }
    self->expand = Py_NewRef(expand);
    self->blocks = Py_NewRef(blocks);
    self->limit_bytes = limit_bytes;
    self->refused = Py_NewRef(refused);
    self->limit = Py_NewRef(limit);
    self->joined_bytes_max = joined_bytes_max;
    self->c = (zk_cursor){
        .set = self->set.buf,
        .set_bytes = self->set.len,
        .start_offset = start,
        .end_offset = end,
        .check_crcs = check,
        .excluded = self->excluded.buf,
        .excluded_count = self->excluded.len / (Py_ssize_t)sizeof(int64_t),
        .crc = &state->crcs[with_instructions ? ZK_CRC_ALL : ZK_CRC_TABLES],
        .offset_before = -1,
    };
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static bool cursor_is_free(cursor *self) {
    if (self->is_busy) PyErr_SetString(PyExc_RuntimeError, "two threads use this cursor at the same time");
    return !self->is_busy;
}

/* --- one block of snappy or lz4 in the frame that producers write, one member of gzip, and small payloads of zstd: the
 * Python code around the package that decodes them would cost as much as the package, and the bytes would be copied.  `compression.py` handles everything else, and is the
 * reference for this. */

#define XERIAL_HEADER_BYTES 16
#define LZ4_HEADER_BYTES 7
#define LZ4_AROUND_BLOCK_BYTES 15

typedef struct {
    int64_t start; /* of the block in the payload; -1: it is another frame */
    int64_t end;
    int64_t room; /* the size of the output buffer */
    bool is_estimate; /* it is larger than most payloads need */
} plain_block;

static plain_block plain_snappy(const uint8_t *payload, int64_t bytes) {
    static const uint8_t magic[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};
    plain_block found = {.start = 0, .end = bytes};
    if (bytes >= (int64_t)sizeof magic && !memcmp(payload, magic, sizeof magic)) {
        found.start = XERIAL_HEADER_BYTES + 4;
        if (bytes < found.start || zk_u32(payload + XERIAL_HEADER_BYTES) != (uint64_t)(bytes - found.start)) found.start = -1;
    }
    if (found.start < 0) return found;
    int64_t at = found.start;
    for (int shift = 0;; shift += 7) {
        if (at == bytes || shift > 21) return (plain_block){.start = -1};
        found.room |= (int64_t)(payload[at] & 0x7F) << shift;
        if (payload[at++] < 0x80) return found;
    }
}

/* A member of gzip ends with its size.  If there are several, the decoder fails. */
static plain_block plain_gzip(const uint8_t *payload, int64_t bytes) {
    if (bytes < GZIP_PLAIN_BYTES_MIN || payload[3] & GZIP_FLAGS_RESERVED) return (plain_block){.start = -1};
    const uint8_t *size = payload + bytes - 4;
    return (plain_block){.end = bytes, .room = (int64_t)size[3] << 24 | size[2] << 16 | size[1] << 8 | size[0]};
}

/* Only few payloads are larger. */
static int64_t usual_room(int64_t packed) {
    if (packed <= 4096) return 16 * packed;
    return 4 * packed > 65536 ? 4 * packed : 65536;
}

static int64_t lz4_block_bytes_max(const uint8_t *header, int32_t magic) {
    static const uint8_t right[] = {0x82, 0xFB, 0x51, 0x73}, wrong[] = {0x1A, 0x77, 0xD6, 0x10};
    int code = (header[5] >> 4) - 4;
    if (header[0] != 0x04 || header[1] != 0x22 || header[2] != 0x4D || header[3] != 0x18 || header[4] != 0x60) return -1;
    if (code < 0 || code > 3 || header[5] & 0x0F) return -1;
    return header[6] == right[code] || (magic == 0 && header[6] == wrong[code]) ? (int64_t)1 << (16 + 2 * code) : -1;
}

static plain_block plain_lz4(const uint8_t *payload, int64_t bytes, int32_t magic) {
    plain_block none = {.start = -1};
    int64_t block = bytes - LZ4_AROUND_BLOCK_BYTES;
    if (block < 1) return none;
    const uint8_t *size = payload + LZ4_HEADER_BYTES, *mark = payload + bytes - 4;
    int64_t most = lz4_block_bytes_max(payload, magic);
    if (block > most || mark[0] | mark[1] | mark[2] | mark[3]) return none;
    if (((int64_t)size[3] << 24 | size[2] << 16 | size[1] << 8 | size[0]) != block) return none;
    int64_t room = usual_room(block);
    return (plain_block){.start = LZ4_HEADER_BYTES + 4, .end = bytes - 4, .room = room < most ? room : most, .is_estimate = true};
}

static uint8_t *joined_at(cursor *self, int64_t at) { return (uint8_t *)PyByteArray_AsString(self->joined) + at; }

/* Creates `joined` if it is not there.  Returns false with an exception. */
static bool cursor_create_joined(cursor *self) {
    if (!self->joined) self->joined = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)self->joined_bytes_max);
    return self->joined != NULL;
}

/* What is decompressed to `room` bytes at most; `start` < 0: `expand` must decompress it. */
static plain_block cursor_plain_block(cursor *self) {
    const zk_cursor *c = &self->c;
    const uint8_t *payload = c->set + c->payload_start;
    int64_t bytes = c->payload_end - c->payload_start;
    plain_block block = {.start = -1};
    if (c->codec == CODEC_GZIP) block = plain_gzip(payload, bytes);
    if (c->codec == CODEC_SNAPPY) block = plain_snappy(payload, bytes);
    if (c->codec == CODEC_LZ4) block = plain_lz4(payload, bytes, c->magic);
    if (c->codec == CODEC_ZSTD && c->magic == 2 && bytes <= ZSTD_PLAIN_BYTES_MAX)
        block = (plain_block){.start = 0, .end = bytes, .room = usual_room(bytes), .is_estimate = true};
    if (block.room > self->limit_bytes || block.room > bytes * GZIP_RATIO_MAX) block.start = -1;
    return block;
}

/* Decompresses one block into `out`, an object of `room` bytes.  Returns their number; -1: `expand` must decompress it, or
 * an exception is set. */
static int64_t cursor_expand_into(cursor *self, PyObject *into, plain_block block, PyObject *out) {
    const zk_cursor *c = &self->c;
    PyObject *packed = PySequence_GetSlice(
        self->view, (Py_ssize_t)(c->payload_start + block.start), (Py_ssize_t)(c->payload_start + block.end));
    PyObject *size = packed ? PyObject_CallFunctionObjArgs(into, packed, out, NULL) : NULL;
    Py_XDECREF(packed);
    int64_t filled = size ? PyLong_AsLongLong(size) : -1;
    Py_XDECREF(size);
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyTuple_GetItem(self->blocks, CODEC_ZSTD))) PyErr_Clear();
    return filled <= block.room ? filled : -1;
}

/* Sets `body` to the decompressed payload: a part of `joined` after its first `total` bytes if there is room, or a
 * bytearray.  Returns false with an exception, or if `expand` must decompress it. */
static bool cursor_expand_block(cursor *self, int64_t total) {
    plain_block block = cursor_plain_block(self);
    PyObject *into = block.start < 0 ? Py_None : PyTuple_GetItem(self->blocks, self->c.codec - 1);
    if (!into || into == Py_None) return false;
    int64_t left = self->joined_bytes_max - total;
    if (block.is_estimate && block.room > left && self->expanded_bytes) {
        int64_t alike = 2 * self->expanded_bytes, packed = 4 * (block.end - block.start);
        block.room = alike > packed ? alike : packed;
    }
    bool is_joined = block.room <= left;
    if (is_joined && !cursor_create_joined(self)) return false;
    PyObject *out = is_joined ? PyMemoryView_FromMemory((char *)joined_at(self, total), (Py_ssize_t)block.room, PyBUF_WRITE)
                              : PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)block.room);
    int64_t filled = out ? cursor_expand_into(self, into, block, out) : -1;
    bool is_expanded = filled >= 0;
    if (is_expanded && is_joined) {
        self->body = (Py_buffer){.buf = joined_at(self, total), .len = (Py_ssize_t)filled};
        self->body_start = total;
        self->expanded_bytes = filled;
    } else if (is_expanded) {
        is_expanded = PyByteArray_Resize(out, (Py_ssize_t)filled) == 0 && PyObject_GetBuffer(out, &self->body, PyBUF_SIMPLE) == 0;
        self->body_start = 0;
    }
    Py_XDECREF(out);
    return is_expanded;
}

/* Decompresses the payload of the entry at `position`; the next table has `total` bytes already.  Returns false with an
 * exception. */
static bool cursor_expand(cursor *self, int64_t total) {
    const zk_cursor *c = &self->c;
    if (cursor_expand_block(self, total)) return true;
    if (PyErr_Occurred()) return false;
    PyObject *codec = PyLong_FromLong(c->codec), *magic = PyLong_FromLong(c->magic), *expanded = NULL;
    PyObject *payload = PySequence_GetSlice(self->view, (Py_ssize_t)c->payload_start, (Py_ssize_t)c->payload_end);
    if (codec && magic && payload)
        expanded = PyObject_CallFunctionObjArgs(self->expand, codec, payload, magic, self->limit, NULL);
    Py_XDECREF(codec);
    Py_XDECREF(magic);
    Py_XDECREF(payload);
    if (!expanded) return false;
    bool is_taken = PyObject_GetBuffer(expanded, &self->body, PyBUF_SIMPLE) == 0;
    self->body_start = 0;
    Py_DECREF(expanded);
    return is_taken;
}

/* About how many bytes the next zk_read reads. */
static int64_t cursor_work(const zk_cursor *c, int64_t max_bytes) {
    int64_t work = c->body_end - c->at;
    if (c->inside == ZK_NO_ENTRY) {
        const uint8_t *at = c->set + c->position;
        work = c->set_bytes - c->position;
        if (work > 22 && at[at[ZK_MAGIC_AT] == 2 ? 22 : ZK_MAGIC_AT + 1] & ZK_CODEC_MASK) {
            int64_t size = zk_i32(at + 8);
            return size < work ? size : work;
        }
    } else if (c->body == c->set) {
        work = c->set_bytes - c->at;
    }
    return work < max_bytes ? work : max_bytes;
}

static zk_stop cursor_read(cursor *self, zk_row *rows, int64_t most, int64_t max_bytes, int64_t *count) {
    if (cursor_work(&self->c, max_bytes) < WITHOUT_GIL_BYTES) return zk_read(&self->c, rows, most, max_bytes, count);
    zk_stop stop;
    Py_BEGIN_ALLOW_THREADS
    stop = zk_read(&self->c, rows, most, max_bytes, count);
    Py_END_ALLOW_THREADS
    return stop;
}

/* Their data was moved by `shift` bytes. */
static void shift_rows(zk_row *row, int64_t count, int64_t shift) {
    for (; count > 0; count--, row++) {
        row->key_start = (int32_t)(row->key_start + shift);
        row->value_start = (int32_t)(row->value_start + shift);
        row->headers_start = row->header_count ? (int32_t)(row->headers_start + shift) : 0;
        row->headers_end = row->header_count ? (int32_t)(row->headers_end + shift) : 0;
    }
}

/* Appends bytes to those that are joined already; no copy if they were decompressed there. */
static bool cursor_join(cursor *self, const uint8_t *from, int64_t bytes, int64_t total) {
    if (!cursor_create_joined(self)) return false;
    if (from != joined_at(self, total)) memmove(joined_at(self, total), from, (size_t)bytes);
    return true;
}

static bool is_body_in_joined(const cursor *self) {
    const zk_cursor *c = &self->c;
    bool is_read = c->inside == ZK_BATCH || c->inside == ZK_WRAPPER;
    return is_read && c->body != c->set && !self->body.obj;
}

/* Returns an object with the first `total` bytes of `joined`.  A body of which records are not read yet keeps `joined`. */
static PyObject *cursor_take_joined(cursor *self, int64_t total) {
    int64_t capacity = self->joined_bytes_max;
    PyObject *joined = self->joined, *taken = NULL;
    bool is_kept = is_body_in_joined(self), is_small = total < capacity - capacity / 8;
    if (is_small && !(taken = PyBytes_FromStringAndSize((const char *)joined_at(self, 0), (Py_ssize_t)total))) return NULL;
    if (is_small && !is_kept) return taken;
    /* Less than half of its memory is cut off, so it does not move. */
    int64_t end = is_kept ? self->body_start + self->body.len : total;
    if (!is_small && PyByteArray_Resize(joined, (Py_ssize_t)end) < 0) return NULL;
    if (is_kept) {
        Py_ssize_t body_bytes = self->body.len;
        if (PyObject_GetBuffer(joined, &self->body, PyBUF_SIMPLE) < 0) {
            Py_XDECREF(taken);
            return NULL;
        }
        self->body.buf = (uint8_t *)self->body.buf + self->body_start;
        self->body.len = body_bytes;
    }
    self->joined = NULL;
    if (!taken) return joined;
    Py_DECREF(joined);
    return taken;
}

/* Returns the only body in `joined`, which records are read from without a copy. */
static PyObject *cursor_take_body(cursor *self) {
    PyObject *joined = self->joined;
    if (PyByteArray_Resize(joined, self->body.len) < 0) return NULL;
    if (PyObject_GetBuffer(joined, &self->body, PyBUF_SIMPLE) < 0) return NULL;
    self->c.body = self->body.buf;
    self->joined = NULL;
    return joined;
}

/* Reads the next rows; returns the object that contains their bytes: the record set, a decompressed payload, or several
 * small parts of these.  NULL: an exception is set, or there are no rows. */
static PyObject *cursor_fill(cursor *self, zk_row *rows, int64_t most, int64_t max_bytes, int64_t *filled) {
    zk_cursor *c = &self->c;
    int64_t total = 0, small = self->joined_bytes_max / 4;
    *filled = 0;
    for (;;) {
        if (c->inside == ZK_PENDING) {
            if (self->body.obj) PyBuffer_Release(&self->body);
            if (!cursor_expand(self, total)) {
                if (!*filled || !PyErr_ExceptionMatches(self->refused)) return NULL;
                PyErr_Clear(); /* raised again by the next call */
                self->stop = ZK_FULL;
                break;
            }
            if (!zk_enter(c, self->body.buf, self->body.len)) {
                self->stop = ZK_ODD;
                break;
            }
        }
        bool is_expanded = c->inside != ZK_NO_ENTRY && c->body != c->set;
        if (*filled && is_expanded && self->body.len - c->at > self->joined_bytes_max - total) {
            self->stop = ZK_FULL; /* a table of its own */
            break;
        }
        int64_t room = *filled ? self->joined_bytes_max - total : max_bytes;
        int64_t from = c->inside == ZK_NO_ENTRY ? c->position : c->at, count;
        zk_cursor before = *c;
        self->stop = cursor_read(self, rows + *filled, most - *filled, room, &count);
        bool is_inside = c->inside == ZK_BATCH || c->inside == ZK_WRAPPER;
        int64_t bytes = (is_expanded || (is_inside && c->body == c->set) ? c->at : c->position) - from;
        bool goes_on = self->stop == ZK_LEFT || self->stop == ZK_PACKED;
        if (count && (*filled || (goes_on && bytes <= small))) {
            if (bytes > self->joined_bytes_max - total) {
                *c = before;
                self->stop = ZK_FULL;
                break;
            }
            if (!cursor_join(self, (is_expanded ? before.body : c->set) + from, bytes, total)) return NULL;
            shift_rows(rows + *filled, count, total - from);
            total += bytes;
        } else if (count) {
            /* The record set, or the decompressed bytes, which are read further without a copy. */
            *filled = count;
            if (goes_on) self->stop = ZK_FULL;
            if (!is_expanded) return Py_NewRef(self->set.obj);
            if (!self->body.obj) return cursor_take_body(self);
            shift_rows(rows, count, self->body_start);
            return Py_NewRef(self->body.obj);
        }
        *filled += count;
        if (!goes_on) break;
        if (*filled == most || total >= self->joined_bytes_max - small) {
            self->stop = ZK_FULL;
            break;
        }
    }
    return *filled ? cursor_take_joined(self, total) : NULL;
}

/* table(rows, max_bytes) -> (data, count): the object that contains the bytes of the rows, and their number; see `stop`.
 * (None, 0) without rows.  Raises the exceptions of `expand`, if no rows precede that entry. */
static PyObject *cursor_table(cursor *self, PyObject *args) {
    Py_buffer rows;
    long long max_bytes;
    int64_t filled = 0;
    PyObject *data = NULL;
    if (!PyArg_ParseTuple(args, "w*L", &rows, &max_bytes)) return NULL;
    int64_t most = rows.len / (Py_ssize_t)sizeof(zk_row);
    if (!cursor_is_free(self)) {
        /* its exception */
    } else if (most < 1 || max_bytes < 1) {
        PyErr_SetString(PyExc_ValueError, "no room for a row");
    } else {
        self->is_busy = true;
        data = cursor_fill(self, rows.buf, most, max_bytes, &filled);
        self->is_busy = false;
        if (self->c.inside == ZK_NO_ENTRY && self->body.obj) PyBuffer_Release(&self->body);
    }
    PyBuffer_Release(&rows);
    if (!data && PyErr_Occurred()) return NULL;
    return data ? Py_BuildValue("NL", data, (long long)filled) : Py_BuildValue("Oi", Py_None, 0);
}

/* skip(): continue after the entry at `entry`, which the reference has read */
static PyObject *cursor_skip(cursor *self, PyObject *Py_UNUSED(ignored)) {
    if (!cursor_is_free(self)) return NULL;
    zk_skip(&self->c);
    if (self->body.obj) PyBuffer_Release(&self->body);
    Py_RETURN_NONE;
}

static PyObject *cursor_stop(cursor *self, void *Py_UNUSED(closure)) { return PyLong_FromLong(self->stop); }

/* (position, end, magic, offset in the header, last offset) of the entry to which `stop`, or an exception, refers */
static PyObject *cursor_entry(cursor *self, void *Py_UNUSED(closure)) {
    const zk_cursor *c = &self->c;
    return Py_BuildValue(
        "LLiLL", (long long)c->position, (long long)c->end, (int)c->magic, (long long)c->offset, (long long)c->last_offset);
}

static PyObject *cursor_position(cursor *self, void *Py_UNUSED(closure)) { return PyLong_FromLongLong(self->c.position); }

static PyObject *cursor_offset_before(cursor *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->c.offset_before);
}

/* The first offset that was not returned yet; the reference continues there. */
static PyObject *cursor_next_offset(cursor *self, void *Py_UNUSED(closure)) {
    const zk_cursor *c = &self->c;
    int64_t next = c->inside == ZK_NO_ENTRY ? c->offset_before + 1 : c->record_before + 1;
    return PyLong_FromLongLong(next > c->start_offset ? next : c->start_offset);
}

static PyGetSetDef cursor_getset[] = {
    {"stop", (getter)cursor_stop, NULL, NULL, NULL},
    {"entry", (getter)cursor_entry, NULL, NULL, NULL},
    {"position", (getter)cursor_position, NULL, NULL, NULL},
    {"offset_before", (getter)cursor_offset_before, NULL, NULL, NULL},
    {"next_offset", (getter)cursor_next_offset, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef cursor_methods[] = {
    {"table", (PyCFunction)cursor_table, METH_VARARGS, NULL},
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

/* scan(record_set, end_offset) -> (complete bytes, entries, first offset, next offset, whether the first offset is the
 * offset of the last message of a wrapper); None: the reference must read it */
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

#define LEADER_EPOCH_AT 12

/* Appends the number to the list; None for a negative epoch. */
static bool append_number(PyObject *list, int64_t number, bool is_epoch) {
    PyObject *item = is_epoch && number < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(number);
    bool is_done = item && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return is_done;
}

/* outline(record_set, start_offset) -> (the byte of the first entry that covers this or a later offset; for each run of
 * entries with one leader epoch its first offset; these epochs, None if unknown), up to the first damaged entry */
static PyObject *outline(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer set;
    long long start_offset;
    if (!PyArg_ParseTuple(args, "y*L", &set, &start_offset)) return NULL;
    PyObject *starts = PyList_New(0), *epochs = PyList_New(0), *found = NULL;
    zk_cursor c = {.set = set.buf, .set_bytes = set.len, .offset_before = -1};
    int64_t begin = 0, epoch_before = -2; /* of no entry */
    bool is_done = starts && epochs;
    while (is_done && zk_next_entry(&c) == ZK_FULL) {
        int64_t epoch = c.magic > 1 ? zk_i32(c.set + c.position + LEADER_EPOCH_AT) : -1;
        if (epoch < 0) epoch = -1;
        if (c.last_offset < start_offset) begin = c.end;
        if (epoch != epoch_before) {
            is_done = append_number(starts, c.offset_before + 1, false) && append_number(epochs, epoch, true);
        }
        epoch_before = epoch;
        zk_skip(&c);
    }
    PyBuffer_Release(&set);
    if (is_done) found = Py_BuildValue("LOO", (long long)begin, starts, epochs);
    Py_XDECREF(starts);
    Py_XDECREF(epochs);
    return found;
}

static PyObject *checksum(PyObject *module, PyObject *args, bool is_crc32c) {
    Py_buffer data;
    unsigned char use;
    if (!PyArg_ParseTuple(args, "y*b", &data, &use)) return NULL;
    const zk_crc *crc = &state_of(module)->crcs[use < ZK_CRC_USES ? use : ZK_CRC_ALL];
    uint32_t found = (is_crc32c ? crc->crc32c : crc->crc32)(crc, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(found);
}

/* crc32(data, use), crc32c(data, use): see `zk_crc_use` */
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
        PyErr_SetString(PyExc_ValueError, "the rows are outside of the table");
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

/* The layout of the key and the value in a row. */
typedef struct {
    span name;
    span value;
} header_row;

_Static_assert(offsetof(zk_row, key_length) == offsetof(zk_row, key_start) + offsetof(span, length), "the key of a row has the layout of a span");
_Static_assert(offsetof(zk_row, value_length) == offsetof(zk_row, value_start) + offsetof(span, length), "the value of a row has the layout of a span");

/* Gathers `count` fields of `data`; the distance between the spans of two fields is `step` bytes. -> (0 and the end of each
 * field, as int32; the bytes of the fields; a bit for each field that is not null, or None; the number of nulls) */
static PyObject *gathered(const Py_buffer *data, const void *first, size_t step, int64_t count) {
    const char *at = first;
    int64_t sum = 0, nulls = 0;
    for (int64_t row = 0; row < count; row++) {
        span each;
        memcpy(&each, at + (size_t)row * step, sizeof each);
        if (each.length < 0) {
            nulls++;
            continue;
        }
        if (each.start < 0 || each.length > data->len - each.start || (sum += each.length) > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a field is outside of the data, or the fields have 2 GiB or more");
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
            span each;
            memcpy(&each, at + (size_t)row * step, sizeof each);
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
    const char *first = (const char *)rows.rows + (is_key ? offsetof(zk_row, key_start) : offsetof(zk_row, value_start));
    found = gathered(&rows.data, first, sizeof(zk_row), rows.count);
    release_part(&rows);
    return found;
}

#define MS_MAX (INT64_MAX / 1000)

static int64_t in_micros(int64_t ms) { return (ms > MS_MAX ? MS_MAX : ms < -MS_MAX ? -MS_MAX : ms) * 1000; }

/* numbers(table, low, high, in_micros) -> (offsets, timestamps in ms or us, both int64; types of timestamps, int32).
 * Microseconds beyond 64 bits become the smallest or largest 64-bit number. */
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

/* headers(data, table, low, high) -> (0 and the end of the headers of each row, as int32; a bit for each row that has
 * headers; the number of rows without headers; the number of headers; names; values, both as in `gathered`) */
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
    header_row *each_header = PyMem_Malloc((size_t)(all ? all : 1) * sizeof(header_row));
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
            each_header[filled].name = (span){(int32_t)(at - raw), (int32_t)name};
            if (!(at = zk_past(at, behind, name)) || !(at = zk_varint(at, behind, &value))) break;
            each_header[filled].value = (span){(int32_t)(at - raw), value < 0 ? -1 : (int32_t)value};
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
    names = gathered(&rows.data, &each_header->name, sizeof(header_row), all);
    values = names ? gathered(&rows.data, &each_header->value, sizeof(header_row), all) : NULL;
    if (values) found = Py_BuildValue("OOLLOO", ends, having, (long long)without, (long long)all, names, values);
    PyMem_Free(each_header);
    goto done;
odd:
    PyErr_SetString(PyExc_ValueError, "the headers of a row do not have the length in the row");
done:
    Py_XDECREF(ends);
    Py_XDECREF(having);
    Py_XDECREF(names);
    Py_XDECREF(values);
    release_part(&rows);
    return found;
}

/* cut(table, low, high, max_bytes) -> the end of the rows from `low` on, at least one row, whose values begin within
 * `max_bytes` bytes */
static PyObject *cut(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *table;
    long long low, high, max_bytes;
    part rows;
    if (!PyArg_ParseTuple(args, "OLLL", &table, &low, &high, &max_bytes)) return NULL;
    if (!take_part(table, table, low, high, &rows)) return NULL;
    int64_t first = 0, behind = rows.count; /* values are in the order of the rows */
    if (rows.count) {
        int64_t until = rows.rows[0].value_start + max_bytes;
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

/* --- Fetch responses ------------------------------------------------------------------------------------------------ */

#define FETCHED_ROWS_MAX 200000 /* the reference reads responses with more partitions, because it limits its memory */

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

/* Puts a new reference into the tuple; returns false if the reference is NULL. */
static bool put(PyObject *tuple, Py_ssize_t index, PyObject *item) { return item && PyTuple_SetItem(tuple, index, item) == 0; }

/* The aborted transactions of a row without the tags between them. */
static PyObject *aborted_of(const uint8_t *data, const zk_fetched *row) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(row->aborted_count * ZK_ABORTED_BYTES));
    char *to = made ? PyBytes_AsString(made) : NULL;
    for (int64_t at = 0; to && at < row->aborted_count; at++, to += ZK_ABORTED_BYTES)
        memcpy(to, data + row->aborted_start + at * row->aborted_stride, ZK_ABORTED_BYTES);
    return made;
}

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
    PyObject *made = PyTuple_New(12);
    bool is_made = made != NULL;
    if (!is_made) Py_XDECREF(records);
    is_made = is_made && put(made, 4, records) && put(made, 0, Py_NewRef(topic)) &&
              put(made, 1, PyLong_FromLong(row->partition)) && put(made, 2, PyLong_FromLong(row->error_code)) &&
              put(made, 3, PyLong_FromLongLong(row->high_watermark)) &&
              put(made, 5, PyLong_FromLongLong(found.complete_bytes)) &&
              put(made, 6, PyLong_FromLongLong(found.is_odd ? -1 : found.entries)) &&
              put(made, 7, PyLong_FromLongLong(found.entries ? found.next_offset : -1)) &&
              put(made, 8, PyLong_FromLongLong(row->last_stable_offset)) && put(made, 9, aborted_of(data, row)) &&
              put(made, 10, PyLong_FromLongLong(row->log_start_offset)) &&
              put(made, 11, PyLong_FromLong(row->preferred_read_replica));
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
            const char *at = (const char *)answer->data + topic_start;
            Py_ssize_t bytes = (Py_ssize_t)(row.topic_end - topic_start);
            topic = answer->version < ZK_FETCH_TOPIC_IDS_FROM ? PyUnicode_DecodeUTF8(at, bytes, NULL)
                                                              : PyBytes_FromStringAndSize(at, bytes);
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

/* fetched(answer, start, version) -> (throttle time in ms, error code, session id, rows); None: the reference must read
 * it.  A row: name or id of the topic, partition, error code, high watermark, record set or None, and of its record set
 * the bytes of complete entries, their number (-1: the reference must read it), the offset after the last of them or
 * -1; the last stable offset, the aborted transactions, 16 bytes each, the log start offset, the preferred read replica.
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
        PyErr_SetString(PyExc_ValueError, "start is outside of the answer");
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

/* A bytearray of this size with undefined content: filling it with zeros would take a tenth of the time of receiving. */
static PyObject *unwritten(PyObject *Py_UNUSED(module), PyObject *size) {
    Py_ssize_t bytes = PyLong_AsSsize_t(size);
    if (bytes == -1 && PyErr_Occurred()) return NULL;
    if (bytes < 0) {
        PyErr_SetString(PyExc_ValueError, "the size must not be negative");
        return NULL;
    }
    return PyByteArray_FromStringAndSize(NULL, bytes);
}

/* --- the module ----------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"crc32", crc32, METH_VARARGS, NULL},
    {"crc32c", crc32c, METH_VARARGS, NULL},
    {"cut", cut, METH_VARARGS, NULL},
    {"fetched", fetched, METH_VARARGS, NULL},
    {"fields", fields, METH_VARARGS, NULL},
    {"headers", headers, METH_VARARGS, NULL},
    {"numbers", numbers, METH_VARARGS, NULL},
    {"outline", outline, METH_VARARGS, NULL},
    {"scan", scan, METH_VARARGS, NULL},
    {"unwritten", unwritten, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static int module_exec(PyObject *module) {
    module_state *state = state_of(module);
    zk_crc_fill_tables(&state->crc_tables);
    for (int use = 0; use < ZK_CRC_USES; use++) zk_crc_init(&state->crcs[use], &state->crc_tables, (zk_crc_use)use);
    state->cursor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &cursor_spec, NULL);
    if (!state->cursor_type || PyModule_AddType(module, state->cursor_type) < 0) return -1;
    if (PyModule_AddIntConstant(module, "END", ZK_END) < 0 || PyModule_AddIntConstant(module, "ODD", ZK_ODD) < 0) return -1;
    PyObject *by = Py_BuildValue("ss", state->crcs[ZK_CRC_ALL].crc32_by, state->crcs[ZK_CRC_ALL].crc32c_by);
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
    .m_doc = "The record decoder, compiled.  Internal: see zkconsumer.wire.record_tables.",
    .m_size = sizeof(module_state),
    .m_methods = methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__records(void) { return PyModuleDef_Init(&definition); }
